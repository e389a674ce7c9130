"""A measured table as it stands in a CSV file: its columns as text, found under any of their names."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb import packaged
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats, Ints

Words = NDArray[np.str_]


@cache
def facts() -> dict[str, Any]:
    """What formats.toml says."""
    return packaged.toml("tilewise.server.validate", "formats.toml")


@cache
def formats() -> dict[str, dict[str, Any]]:
    """The known formats by name, most particular first."""
    return {name: entry for name, entry in facts().items() if "needs" in entry}


class Sheet(Record):
    """name: of the file; columns: text of every cell, shape (rows,); format: its name in formats.toml

    library: whose kernels each row timed, by the code of the GPU's calibration (validate/software.py)
    """

    name: str
    columns: Mapping[str, Words]
    format: str
    library: Ints | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def title(self) -> str:
        return str(formats()[self.format]["title"])

    @property
    def named(self) -> Ints:
        """`library`, zeros where nobody was looked for."""
        return np.zeros(len(self), np.int64) if self.library is None else self.library

    def has(self, column: str) -> bool:
        return found(column, self.format, self.columns) is not None

    def text(self, column: str, default: str = "") -> Words:
        """A column by our name or by another that its format allows; `default` everywhere where there is none."""
        there = found(column, self.format, self.columns)
        return np.full(len(self), default) if there is None else self.columns[there]

    def number(self, column: str, default: float = np.nan) -> Floats:
        """A column as numbers; what is empty or no number is NaN."""
        if not self.has(column):
            return np.full(len(self), default)
        return np.array([_number(word) for word in self.text(column).tolist()], float)

    def words(self, column: str, kind: str, default: str = "") -> Words:
        """A column with the tables' words replaced by ours ([words.<kind>])."""
        known = facts()["words"][kind]
        return np.array([str(known.get(word, word)) for word in self.text(column, default).tolist()])


def read(text: str, name: str) -> Sheet:
    """The table in a CSV text. Raises InvalidInput (UNKNOWN_TABLE) where it has no known columns, BAD_TABLE for no table."""
    try:
        rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))
    except csv.Error as error:
        raise InvalidInput(f"{name} is no table: {error}", reason="BAD_TABLE", field="table") from error
    if len(rows) < 2:
        raise InvalidInput(f"{name} holds no rows under a line of column names", reason="BAD_TABLE", field="table")
    head, body = rows[0], [row for row in rows[1:] if row]
    uneven = next((line for line, row in enumerate(body, 2) if len(row) != len(head)), None)
    if uneven is not None:
        message = f"{name} line {uneven} has {len(body[uneven - 2])} cells under {len(head)} column names"
        raise InvalidInput(message, reason="BAD_TABLE", field="table")
    columns = {title: np.array(cells) for title, cells in zip(head, zip(*body, strict=True), strict=True)}
    return Sheet(name, columns, recognise(columns, name))


def recognise(columns: Mapping[str, Any], name: str) -> str:
    """The format that a table's columns have."""
    missing = {
        kind: [column for column in entry["needs"] if found(column, kind, columns) is None]
        for kind, entry in formats().items()
    }
    for kind, lacking in missing.items():
        if not lacking:
            return kind
    nearest = min(missing, key=lambda kind: len(missing[kind]) / len(formats()[kind]["needs"]))
    partly, title = len(missing[nearest]) < len(formats()[nearest]["needs"]), formats()[nearest]["title"]
    hint = f"nearest is {nearest} ({title}), which also needs {', '.join(missing[nearest])}; " if partly else ""
    message = f"{name} has the columns of no table known here; {hint}known are {', '.join(formats())}"
    raise InvalidInput(message, reason="UNKNOWN_TABLE", field="table", nearest=nearest)


def found(column: str, kind: str, columns: Mapping[str, Any]) -> str | None:
    """The name under which a table holds a column, None where it does not."""
    names = (column, *formats()[kind].get("columns", {}).get(column, ()))
    return next((name for name in names if name in columns), None)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
