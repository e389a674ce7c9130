"""What a kernel costs besides its run time, from the launch family: CPU issue, and the GPU's gap behind a kernel.

The times of all other models are those of graph nodes, so the gap between two nodes is part of them; what a stream
adds to it is the gap of eager and compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewise.hwdb.calibration import Calibration, Measurements
from tilewise.hwdb.kernels import machines
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats

MEASURED = ("launch",)
# Eager model code calls about so many functions that launch nothing (views, modules) for every one that does
SILENT_CALLS = 2
SILENT = "view"
# A model's Python around its operators: eager steps of eight transformers models whose GPU waits issue a kernel in 46 us
# (0.7 to 1.4 times that in nine of ten) where the calls alone take 28 (scripts/research/measure_transformers.py, one H100, 2026-11-28)
FRAMEWORK = (0.7 * 1.65, 1.65, 1.4 * 1.65)
PLANS = (0.7, 1.0, 1.3)  # what nine models' plans differ by (launch.toml)
NODE_GAP_S = [0.0, 0.0, 1e-7]  # see the module; the upper end is what 100 and 1000 nodes differ by


def from_calibration(calibration: Calibration, sku: Sku) -> dict[str, Any]:
    """{mode: {issue_s, gap_s: [low, value, high], source}, plan: {time_s}}, as hwdb/launch.py reads it."""
    return fit(calibration.measurements("launch"), machines.between_hosts(calibration))


def fit(columns: Measurements, differ: float = 0.0) -> dict[str, Any]:
    """Issue of eager code: a recorded call with its silent ones, and the model's Python around them.

    differ: log by which another host's may differ. Compiled code calls generated wrappers instead: from half the quickest call to a usual one. A graph is issued once.
    """
    issue, queued, node = (_times(columns, mode) for mode in ("issue", "queued", "graph"))
    recorded = np.array([*_times(columns, "forward").values(), *_times(columns, "backward").values()])
    calls = np.array([seconds for name, seconds in issue.items() if name != SILENT])
    gap = _range(np.array([queued[name] - node[name] for name in queued if name in node]))
    silent = SILENT_CALLS * issue[SILENT]
    eager = [share * (np.median(recorded) + silent) for share in FRAMEWORK]
    compiled = [calls.min() / 2, calls.min(), float(np.median(calls))]
    per_node = _times(columns, "graph_launch", calls=1000).get("add_", 0.0) / 1000
    plan = [share * seconds for seconds in _times(columns, "plan").values() for share in PLANS]
    return {
        "eager": _entry(wider(eager, differ), gap),
        "compiled": _entry(wider(compiled, differ), gap),
        "graph": _entry([0.0, per_node, 10 * per_node], NODE_GAP_S),
        **({"plan": {"time_s": plan}} if plan else {}),
    }


def _times(columns: Measurements, mode: str, calls: int = 0) -> dict[str, float]:
    """Seconds by operation in one mode; the largest number of calls where an operation has several."""
    rows = np.flatnonzero((columns["mode"] == mode) & (columns["calls"] >= calls))
    rows = rows[np.argsort(columns["calls"][rows], kind="stable")]
    return {str(columns["operation"][row]): float(columns["time_us"][row]) * 1e-6 for row in rows}


def _range(seconds: Floats) -> list[float]:
    return [float(value) for value in np.quantile(seconds, [0.05, 0.5, 0.95])]


def wider(seconds: Sequence[float], differ: float) -> list[float]:
    """[low, value, high] whose ends lie `differ` (log) farther out, as independent errors add."""
    low, value, high = seconds
    return [value / _both(value / low, differ), value, value * _both(high / value, differ)]


def _both(ratio: float, differ: float) -> float:
    return math.exp(math.hypot(math.log(ratio), differ))


def _entry(issue_s: list[float], gap_s: list[float]) -> Mapping[str, Any]:
    return {
        "issue_s": [float(f"{value:.3g}") for value in issue_s],
        "gap_s": [float(f"{value:.3g}") for value in gap_s],
        "source": "calibration",
    }
