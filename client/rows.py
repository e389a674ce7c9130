"""What an answer holds several of: a tuple that knows how to show itself as a table and to become a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, SupportsIndex, TypeVar, overload

from tilewise.hwdb.errors import NotAvailable

Item_co = TypeVar("Item_co", covariant=True)
SHOWN = 20  # rows of a table in a notebook
Row = dict[str, Any]


class Rows(tuple[Item_co, ...]):
    """Equal things in their order: layers, operators, points of a sweep, GPUs."""

    __slots__ = ()

    @overload
    def __getitem__(self, at: SupportsIndex) -> Item_co: ...
    @overload
    def __getitem__(self, at: slice) -> Rows[Item_co]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Item_co | Rows[Item_co]:
        return Rows(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def to_dataframe(self) -> Any:
        """A pandas.DataFrame, or a polars.DataFrame where only that is installed: a row each, a column a figure.

        Units are in the columns' names. Raises NotAvailable where neither is installed.
        """
        return dataframe([row(each) for each in self])

    def _repr_html_(self) -> str:
        from tilewise.client.render.html import plain_table

        more = f"<p>{len(self) - SHOWN} more</p>" if len(self) > SHOWN else ""
        return plain_table([row(each) for each in self[:SHOWN]]) + more


def row(item: Any) -> Row:
    """The single figures and words of one thing; lists inside of it are left out. An error is its message."""
    if isinstance(item, Exception):
        return {"error": str(item)}
    own = getattr(item, "_row", None)
    if own is not None:
        return dict(own())
    values = {field.name: getattr(item, field.name) for field in fields(item)}
    return {
        name: value
        for name, value in values.items()
        if not isinstance(value, tuple | Mapping) and not is_dataclass(value)
    }


def dataframe(rows: Sequence[Row]) -> Any:
    """Rows as a data frame of pandas, or else of polars; a row that lacks a column has none there."""
    columns = list(dict.fromkeys(name for each in rows for name in each))
    whole = {name: [each.get(name) for each in rows] for name in columns}
    for library in ("pandas", "polars"):
        with suppress(ImportError):
            return import_module(library).DataFrame(whole)
    raise NotAvailable("a data frame needs pandas or polars: pip install pandas", reason="EXTRA_MISSING")
