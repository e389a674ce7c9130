"""Comparisons in words: values with their units, changes with their intervals."""

from __future__ import annotations

from tilewise.server.gate.metrics import METRICS
from tilewise.server.step.intervals import Bounds

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
    "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (1.0, "B")),
    "count": ((1e9, "B"), (1e6, "M"), (1.0, "")),
    "tokens/s": ((1.0, "tokens/s"),),
}


def value(metric: str, number: float) -> str:
    """A value of a metric with its unit: "310 ms", "41.2 %", "8.03 B"."""
    unit = METRICS[metric].unit
    if unit == "share":
        return f"{100 * number:.1f} %"
    scale, name = next((each for each in _SCALES[unit] if abs(number) >= each[0]), _SCALES[unit][-1])
    return f"{figure(number / scale)} {name}".rstrip()


def figure(number: float) -> str:
    """Four significant digits, no exponent."""
    digits = next((digits for digits, least in ((0, 1000), (1, 100), (2, 10), (3, 0)) if abs(number) >= least), 3)
    return f"{number:,.{digits}f}"


def change(ratio: float) -> str:
    """1.07 -> "+7.0 %"."""
    return f"{100 * (ratio - 1):+.1f} %".replace("-0.0 %", "0.0 %").replace("+0.0 %", "0.0 %")


def band(ratio: Bounds | None) -> str:
    """The interval of a (low, ratio, high), "+4.9 to +9.1 %"; "" where the metric is exact or the file is new."""
    if ratio is None or ratio[0] == ratio[2]:
        return ""
    return f"{change(ratio[0]).removesuffix(' %')} to {change(ratio[2])}"


def moved(metric: str, head: float, base: float | None, ratio: Bounds | None) -> str:
    """ "301 ms -> 322 ms, +7.0 % (+4.9 to +9.1 %)"; of a new file the value alone."""
    if base is None:
        return value(metric, head)
    around = f" ({band(ratio)})" if band(ratio) else ""
    by = f", {change(ratio[1])}{around}" if ratio is not None else ""
    return f"{value(metric, base)} -> {value(metric, head)}{by}"


def told(metric: str, workload: str, gpu: str, moved: str, limit: str) -> str:
    """A comparison that does not hold for sure, in one sentence."""
    return f"{metric} of {workload} on {gpu}: {moved}; the budget says {limit}"
