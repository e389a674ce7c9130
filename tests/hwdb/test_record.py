"""Records: frozen values with named fields."""

from functools import cached_property

import pytest
from msgspec.structs import replace

from tilewise.hwdb.record import Record


class Place(Record):
    street: str
    number: int = 1

    @cached_property
    def words(self) -> str:
        return f"{self.street} {self.number}"


class House(Place, kw_only=True):
    rooms: tuple[int, ...] = ()


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError, match="immutable"):
        House("Hill", rooms=(2,)).number = 2


def test_a_worked_out_value_is_no_part_of_a_record_and_is_worked_out_anew_for_a_changed_one():
    place = Place("Hill")
    assert place.words == "Hill 1"
    assert place == Place("Hill") and hash(place) == hash(Place("Hill"))
    assert replace(place, number=2).words == "Hill 2"
