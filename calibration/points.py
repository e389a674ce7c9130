"""Rows on disk while a calibration runs: appended as they are measured, so that a kill loses nothing that was finished."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

SYNC_S = 1.0


class PointFile:
    """An append-only CSV file. A row is written in one piece; a torn last line, left by a kill, is cut off on opening."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self._synced = time.monotonic()
        if not _mend(path):
            path.write_text(_line(self.columns))
        with path.open(newline="") as stream:
            found = tuple(next(csv.reader(stream)))
        if found != self.columns:
            raise ValueError(f"{path.name} has the columns {', '.join(found)}; expected {', '.join(self.columns)}")
        self._stream = path.open("a", newline="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self) -> list[dict[str, str]]:
        """Everything written so far."""
        self._stream.flush()
        with self.path.open(newline="") as stream:
            return list(csv.DictReader(stream))

    def append(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows in one write; on disk for good within a second."""
        self._stream.write("".join(_line([compact(row.get(name, "")) for name in self.columns]) for row in rows))
        self._stream.flush()
        if time.monotonic() - self._synced > SYNC_S:
            self.sync()

    def sync(self) -> None:
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        self.sync()
        self._stream.close()


def compact(value: object) -> str:
    """Five significant digits: the noise is in the third or fourth. NaN is empty."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}" if abs(value) < 1e5 else f"{value:.0f}"
    return str(value)


def _line(values: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _mend(path: Path) -> bool:
    """Cut a torn last line off; False when nothing whole is left."""
    if not path.exists():
        return False
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as stream:
            stream.truncate(whole)
    return whole > 0
