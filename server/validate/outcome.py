"""What came of a table: its measured quantities beside their predictions, and why a row has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats
from tilewise.server.validate.sheet import Words

COVERAGE = 0.9  # what an interval claims to cover
BANDS_S = (1e-5, 3e-5, 1e-4, 1e-3, 1e-2, 1e-1)
BANDS = ("below 10 us", "10-30 us", "30-100 us", "100 us-1 ms", "1-10 ms", "10-100 ms", "above 100 ms")


class Quantity(Record):
    """One measured quantity in SI units ("s", "bytes", "" for counts); arrays of shape (rows,), NaN where there is none."""

    name: str
    unit: str
    measured: Floats
    predicted: Floats
    low: Floats
    high: Floats

    @property
    def judged(self) -> NDArray[np.bool_]:
        return np.isfinite(self.measured) & np.isfinite(self.predicted) & (self.measured > 0)

    @property
    def ratio(self) -> Floats:
        """Predicted over measured; NaN where not judged."""
        ratio: Floats = np.divide(
            self.predicted, self.measured, out=np.full(len(self.measured), np.nan), where=self.judged
        )
        return ratio

    @property
    def bands(self) -> Words:
        """The time band of each row, by the measured time."""
        return np.array(BANDS)[np.searchsorted(BANDS_S, np.nan_to_num(self.measured), side="right")]


class Outcome(Record, kw_only=True):
    """quantities: what the rows measured, the principal one first
    walls:   the wall that the prediction of a row names, "" without one
    reasons: why a row has no prediction; refused: whether because the models refuse it (else it was skipped)
    groups:  words by which errors are grouped
    """

    quantities: tuple[Quantity, ...]
    walls: Words
    reasons: Words
    refused: NDArray[np.bool_]
    groups: Mapping[str, Words]


class Errors(Record):
    """How far predictions lie off, relative to what was measured.

    mean, median, p90: of |predicted / measured - 1|; bias: mean of predicted / measured - 1
    covered: share of measurements inside the 90 % interval; width: mean of (high - low) / predicted; None without intervals
    """

    points: int
    mean: float
    median: float
    p90: float
    bias: float
    covered: float | None
    width: float | None


def errors(quantity: Quantity, rows: NDArray[np.bool_] | None = None) -> Errors | None:
    """Errors over the judged rows of a mask; None where there are none."""
    use = quantity.judged if rows is None else quantity.judged & rows
    if not use.any():
        return None
    off = quantity.ratio[use] - 1
    measured, predicted = quantity.measured[use], quantity.predicted[use]
    low, high = quantity.low[use], quantity.high[use]
    interval = bool((high > low).any())
    return Errors(
        points=int(use.sum()),
        mean=float(np.abs(off).mean()),
        median=float(np.median(np.abs(off))),
        p90=float(np.quantile(np.abs(off), 0.9)),
        bias=float(off.mean()),
        covered=float(((low <= measured) & (measured <= high)).mean()) if interval else None,
        width=float(((high - low) / predicted).mean()) if interval else None,
    )


def picked(outcome: Outcome, wanted: Mapping[str, Sequence[str]]) -> NDArray[np.bool_]:
    """Rows whose words are among those wanted: {"precision": ("fp8", "fp8_row")}."""
    rows = np.ones(len(outcome.reasons), bool)
    for way, values in wanted.items():
        rows &= np.isin(outcome.groups[way], values)
    return rows


def grouped(outcome: Outcome, quantity: Quantity) -> dict[str, dict[str, Errors]]:
    """Errors by every way of grouping that tells rows apart: {"precision": {"bf16": ...}, ...}."""
    ways = {**outcome.groups, **({"time": quantity.bands} if quantity.unit == "s" else {})}
    found: dict[str, dict[str, Errors]] = {}
    for way, words in ways.items():
        values = _ordered(set(words[quantity.judged].tolist()))
        if len(values) > 1:
            some = {value: errors(quantity, words == value) for value in values}
            found[way] = {value: error for value, error in some.items() if error is not None}
    return found


def _ordered(values: set[str]) -> list[str]:
    """Time bands by length, numbers by size, words by the alphabet."""

    def rank(value: str) -> tuple[int, float, str]:
        if value in BANDS:
            return 0, BANDS.index(value), ""
        digits = value.split(" ")[0].rstrip("+")
        return (1, float(digits), value) if digits.replace(".", "", 1).isdigit() else (2, 0.0, value)

    return sorted(values, key=rank)
