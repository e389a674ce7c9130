"""Record: a frozen value with named fields, what a frozen dataclass is without its cost at every start.

A frozen dataclass writes and compiles seven methods a class: 1.3 ms each, a fifth of a first question's time over the classes
that it needs. msgspec makes a class in 0.03 ms. `msgspec.structs` has `replace`, `asdict` and `force_setattr`.
"""

from __future__ import annotations

from typing import Any, Self, dataclass_transform

from msgspec import Struct


@dataclass_transform(frozen_default=True)  # msgspec's own says nothing of what a base passes on
class Record(Struct, frozen=True, dict=True):
    """Base of classes whose annotations are their fields, in order; keywords of a class as msgspec.Struct takes them.

    What a class works out of its fields is a cached_property (lazy.py) and no part of its value.
    """


class Columns(Record):
    """A record whose fields are arrays with one value a row."""

    def __getitem__(self, rows: Any) -> Self:
        """The rows of a mask, an index array or a slice."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__struct_fields__))
