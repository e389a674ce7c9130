"""Compare two calibrations: same, faster, slower, or cannot tell.

As NVBench does it, a difference counts only where the intervals of both times leave a gap, and only if it survives in
clock cycles too (a card that merely ran at another clock is no faster kernel).
"""

from __future__ import annotations

import math
from collections import Counter
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.record import Record

MATTERS = 0.01  # differences below one per cent are "same"
NOISE_FLOOR = 0.003  # windows of one point agree to this: no interval is narrower
WIDE = 0.02  # overlapping intervals wider than this together prove nothing


class Verdict(Enum):
    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNKNOWN = "cannot tell"


class Change(Record):
    """One point in both calibrations. ratio: new over old time; cycles: the same in clock cycles (NaN without clocks)."""

    shape: str
    old_s: float
    new_s: float
    ratio: float
    cycles: float
    same_kernel: bool
    verdict: Verdict


class FamilyChange(Record):
    """A family: median ratio of its common points with a 90 % interval, and the verdict on it."""

    family: str
    points: int
    only_old: int
    only_new: int
    ratio: float
    low: float
    high: float
    verdict: Verdict
    counts: dict[str, int]
    kernels_changed: int
    changes: tuple[Change, ...]


class _Point(Record):
    time_s: float
    half: float  # half width of the interval, as a share of the time
    clock_hz: float
    kernel: str


def compare(old: Calibration, new: Calibration) -> list[FamilyChange]:
    """Every family that both measured, point by point."""
    families = sorted(set(old.families()) & set(new.families()))
    return [_family(family, _points(old, family), _points(new, family)) for family in families]


def judge(old_s: float, old_half: float, new_s: float, new_half: float) -> Verdict:
    """Verdict on two times whose intervals are +- `half` of the time."""
    ratio = new_s / old_s
    gap = old_s * (1 + old_half) < new_s * (1 - new_half) or new_s * (1 + new_half) < old_s * (1 - old_half)
    if not gap:
        return Verdict.SAME if old_half + new_half <= WIDE and abs(ratio - 1) <= MATTERS else Verdict.UNKNOWN
    if abs(ratio - 1) <= MATTERS:
        return Verdict.SAME
    return Verdict.FASTER if ratio < 1 else Verdict.SLOWER


def median_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Median and its 90 % interval by order statistics (binomial ranks, normal approximation)."""
    ordered = np.sort(values)
    count = len(ordered)
    reach = 1.645 * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - reach), math.ceil(count / 2 + reach)
    return float(np.median(ordered)), float(ordered[max(0, low)]), float(ordered[min(count - 1, high)])


def _family(family: str, old: dict[str, _Point], new: dict[str, _Point]) -> FamilyChange:
    common = sorted(old.keys() & new.keys())
    changes = tuple(_change(shape, old[shape], new[shape]) for shape in common)
    ratio, low, high = median_interval(np.array([c.ratio for c in changes])) if changes else (math.nan,) * 3
    return FamilyChange(
        family=family,
        points=len(common),
        only_old=len(old) - len(common),
        only_new=len(new) - len(common),
        ratio=ratio,
        low=low,
        high=high,
        verdict=_verdict(low, high) if changes else Verdict.UNKNOWN,
        counts=dict(Counter(change.verdict.value for change in changes)),
        kernels_changed=sum(not change.same_kernel for change in changes),
        changes=changes,
    )


def _verdict(low: float, high: float) -> Verdict:
    if low >= 1 - MATTERS and high <= 1 + MATTERS:
        return Verdict.SAME
    if high < 1:
        return Verdict.FASTER
    return Verdict.SLOWER if low > 1 else Verdict.UNKNOWN


def _change(shape: str, old: _Point, new: _Point) -> Change:
    verdict = judge(old.time_s, old.half, new.time_s, new.half)
    cycles = new.time_s * new.clock_hz / (old.time_s * old.clock_hz)
    if verdict in (Verdict.FASTER, Verdict.SLOWER) and not math.isnan(cycles):
        in_cycles = judge(old.time_s * old.clock_hz, old.half, new.time_s * new.clock_hz, new.half)
        # at another clock memory-bound work takes other cycles, so only a contradiction speaks against a difference
        if {verdict, in_cycles} == {Verdict.FASTER, Verdict.SLOWER} or in_cycles is Verdict.SAME:
            verdict = Verdict.UNKNOWN
    known = bool(old.kernel and new.kernel)
    same_kernel = not known or old.kernel == new.kernel
    return Change(shape, old.time_s, new.time_s, new.time_s / old.time_s, cycles, same_kernel, verdict)


def _points(calibration: Calibration, family: str) -> dict[str, _Point]:
    columns = calibration.measurements(family)
    key = [columns[name].astype(str) for name in (*calibration.key_columns(family), "state")]
    shapes = ["/".join(parts) for parts in zip(*key, strict=True)]
    spread = np.nan_to_num(columns["spread"].astype(float), nan=2 * WIDE)
    kernels = columns["kernel"] if "kernel" in columns else np.full(len(shapes), "")
    rows = zip(shapes, columns["time_us"], spread, columns["clock_mhz"], kernels, strict=True)
    return {
        shape: _Point(time_us * 1e-6, max(NOISE_FLOOR, width / 2), clock_mhz * 1e6, str(kernel))
        for shape, time_us, width, clock_mhz, kernel in rows
    }
