"""Records: frozen values as frozen dataclasses are, made more cheaply."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property

import numpy as np
import pytest

from tilewise.hwdb.record import Record


class Place(Record):
    street: str
    number: int = 1

    @cached_property
    def words(self) -> str:
        return f"{self.street} {self.number}"


class House(Place, kw_only=True):
    rooms: tuple[int, ...] = ()


class Apart(Record, eq=False):
    values: object


@dataclass(frozen=True)
class Twin:
    street: str
    number: int = 1


def test_fields_are_given_in_order_or_by_name_and_the_rest_has_its_defaults():
    assert Place("Hill") == Place(street="Hill", number=1) == Place("Hill", 1)
    assert House(street="Hill", rooms=(2,)).number == 1
    assert Place("Hill") != House(street="Hill")


@pytest.mark.parametrize("values, named", [((), {}), (("a", 1, 2), {}), (("a",), {"size": 2})])
def test_what_is_missing_or_unknown_is_named(values, named):
    with pytest.raises(TypeError, match=r"street|2|size"):
        Place(*values, **named)


def test_keyword_only_fields_are_not_given_in_order():
    with pytest.raises(TypeError, match="'Hill'"):
        House("Hill")


def test_a_record_cannot_be_changed():
    place = Place("Hill")
    with pytest.raises(FrozenInstanceError, match="number"):
        place.number = 2
    with pytest.raises(FrozenInstanceError, match="number"):
        del place.number


def test_a_worked_out_value_is_no_part_of_a_record():
    place = Place("Hill")
    assert place.words == "Hill 1"
    assert place == Place("Hill") and hash(place) == hash(Place("Hill"))
    assert repr(place) == "Place(street='Hill', number=1)"
    assert replace(place, number=2).words == "Hill 2"


def test_a_record_without_equality_equals_itself_alone():
    one = Apart(np.zeros(2))
    assert one != Apart(one.values) and {one: 1}[one] == 1


def test_the_functions_of_dataclasses_take_records():
    assert is_dataclass(Place)
    assert asdict(House(street="Hill")) == {"street": "Hill", "number": 1, "rooms": ()}
    seen = [[(each.name, each.type, each.default) for each in fields(kind)] for kind in (Twin, Place)]
    assert [(name, default) for name, _, default in seen[0]] == [(name, default) for name, _, default in seen[1]]
    assert copy.deepcopy(pickle.loads(pickle.dumps(Place("Hill", 3)))) == Place("Hill", 3)
