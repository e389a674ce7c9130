"""How what bounds a step shows on the machine: sentences with the step's own figures, told only where they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from tilewise.hwdb import packaged
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.times import Wall
from tilewise.server.step.report import Report


def signs(gpu: Gpu, report: Report) -> tuple[str, ...]:
    """How the step's regime shows; nothing for a step without a time."""
    return told(report.step.regime, figures(gpu, report)) if report.step.time else ()


def told(regime: str, known: Mapping[str, float]) -> tuple[str, ...]:
    """The signs of a regime whose conditions the figures meet; a figure that is not known (NaN) meets none."""
    return tuple(sign["text"].format(**known) for sign in regimes()[regime] if _holds(sign.get("when", {}), known))


def _holds(when: Mapping[str, tuple[float, float]], known: Mapping[str, float]) -> bool:
    return all(low <= known[name] <= high for name, (low, high) in when.items())


@cache
def regimes() -> dict[str, Any]:
    """regimes.toml: the signs of each regime."""
    return packaged.toml("tilewise.server.step", "regimes.toml")


def figures(gpu: Gpu, report: Report) -> dict[str, float]:
    """What signs speak of; shares are of the step's time."""
    step = report.step
    assert step.time is not None
    time, busy = step.time.time_s, step.busy.time_s
    intensity, ridge = step.executed_flops / step.memory_bytes, step.peak.flops_per_s / gpu.sku.hbm_bytes_per_s
    return {
        "busy_share": busy / time,
        "idle_share": 1 - busy / time,
        "compute_share": (step.walls[Wall.COMPUTE] + step.walls[Wall.SPECIAL_FUNCTION]) / time,
        "bandwidth_share": step.walls[Wall.MEMORY] / time,
        "communication_share": step.walls[Wall.COMMUNICATION] / time,
        "intensity": intensity,
        "ridge": ridge,
        "ridge_share": intensity / ridge,
        "gigabytes": step.memory_bytes / 1e9,
        "mfu": step.mfu or 0.0,
        "mbu": step.mbu or 0.0,
        "power_share": step.energy.energy_j / time / gpu.sku.tdp_w if step.energy else math.nan,
        "launches": step.launches,
        "mean_us": 1e6 * busy / step.launches,
        "issue_ms": 1e3 * step.issue_s,
        "busy_ms": 1e3 * busy,
        "issue_over_busy": step.issue_s / busy,
        "issue_share": step.issue_s / time,
    }
