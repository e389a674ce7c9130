"""Records: frozen values with named fields."""

from functools import cached_property

import numpy as np
import pytest
from msgspec.structs import replace

from tilewise.hwdb.record import Columns, Record


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


def test_rows_of_columns_are_the_rows_of_every_field():
    class Sizes(Columns):
        m: np.ndarray
        n: np.ndarray

    some = Sizes(np.arange(4), np.arange(4) * 2)[np.array([3, 1])]
    assert (some.m.tolist(), some.n.tolist()) == ([3, 1], [6, 2])
