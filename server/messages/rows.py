"""The rows that a step was summed from, as columns of a message and back: by them a saved prediction is judged as a live one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb import table as tables
from tilewise.hwdb import times as answers
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.table import Kind, Label, OperatorTable
from tilewise.hwdb.times import Times
from tilewise.server.step.time import ASKS, BEFORE_SYNC, SPLIT, before_sync, planned, split
from tilewise.v1.report_pb2 import OperatorColumn

COLUMNS = tuple(name for name in tables.COLUMNS if name not in ("label", "shape"))
SECONDS = ("low_s", "time_s", "high_s")
# 1 where a measurement stands behind the row; where the host waits after it; where cuDNN plans it; where a product is split
MARKS = ("measured", "before_sync", "planned", "split")
KERNELS = ("cudnn", SPLIT)  # kernels' names as far as a saved row needs them
LABELS = (Label(name="", layer="", part=""), Label(name=ASKS, layer=BEFORE_SYNC, part=""))
MOST = 2000  # rows of a step; the most of 112 public configs are 773, and pairs of rows are compared


def to_columns(table: OperatorTable, times: Times) -> list[dict[str, Any]]:
    """Fields of OperatorColumns: of one shape, none of its rows refused."""
    marks = np.isfinite(times.distance), before_sync(table), planned(table, times), split(table, times)
    found = [*(getattr(table, name) for name in COLUMNS), *(getattr(times, name) for name in SECONDS), *marks]
    columns = zip((*COLUMNS, *SECONDS, *MARKS), np.array(found, float), strict=True)
    return [{"name": name, "values": column.tolist()} for name, column in columns if column.any()]


def from_columns(columns: Iterable[OperatorColumn]) -> tuple[OperatorTable, Times]:
    """What `to_columns` was given, as far as errors depend on it. Raises InvalidInput (OLD_BASELINE)."""
    given = {column.name: np.array(column.values) for column in columns}
    length = len(given.get("time_s", ()))
    wrong = _wrong(given, length)
    if wrong:
        message = f"a saved prediction {wrong}"
        raise InvalidInput(message, reason="OLD_BASELINE", field="items.base_predictions.rows")
    full = {name: given.get(name, np.zeros(length)) for name in (*COLUMNS, *SECONDS, *MARKS)}
    kept: dict[str, NDArray[np.generic]] = {name: full[name] for name in COLUMNS}
    table = tables.table_from_columns(LABELS, 1, length, {**kept, "label": full["before_sync"]})
    times = dict.fromkeys(answers.COLUMNS, np.zeros(length)) | {name: full[name] for name in SECONDS}
    times |= {
        "distance": np.where(full["measured"] > 0, 0.0, np.nan),
        "kernel": np.select([full["planned"] > 0, full["split"] > 0], [0, 1], -1),
    }
    return table, Times(**times, kernel_names=KERNELS)


def _wrong(given: dict[str, NDArray[np.float64]], length: int) -> str:
    """Why these are no rows of a step; "" where they are."""
    if not 0 < length <= MOST:
        return f"carries {length} operators: 1 to {MOST} are needed" if length else "carries no operators"
    for name in set(given) - {*COLUMNS, *SECONDS, *MARKS}:
        return f"has a column {name[:40]!r} of its operators that this version does not know"
    if any(len(column) != length or not np.isfinite(column).all() or (column < 0).any() for column in given.values()):
        return "has columns of unlike length, or values that are negative or not finite"
    low, time, high = (given.get(name, np.zeros(length)) for name in SECONDS)
    ordered = (low > 0) & (low <= time) & (time <= high)
    if not ordered.all() or not np.isin(given.get("kind", 0), list(Kind)).all():
        return "has operators of no known kind, or whose times are no interval"
    return ""
