"""What a kernel costs besides its own run time: CPU issue and the gap on the GPU, by execution mode."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.times import Trust

MODES = ("eager", "compiled", "graph")


@dataclass(frozen=True, slots=True)
class Launch:
    """Seconds per kernel, each with a 90 % range.

    issue_s: CPU time to issue one kernel; an eager step lasts max(GPU busy, CPU issue)
    gap_s:   GPU idle time between two kernels of a queue that never runs dry
    """

    issue_s: float
    issue_low_s: float
    issue_high_s: float
    gap_s: float
    gap_low_s: float
    gap_high_s: float
    trust: Trust
    source: str


def launch(mode: str, model: Mapping[str, Any] | None = None) -> Launch:
    """Launch cost of a mode: of a calibration's launch model ({mode: {issue_s, gap_s: [low, value, high]}}) or published.

    Raises InvalidInput (UNKNOWN_MODE).
    """
    if mode not in MODES:
        message = f"execution mode {mode!r} is not one of {', '.join(MODES)}"
        raise InvalidInput(message, reason="UNKNOWN_MODE", field="workload.mode", mode=mode)
    if model and mode in model:
        return _launch(model[mode], Trust[str(model[mode].get("trust", "measured")).upper()])
    return _packaged(mode)


@cache
def _packaged(mode: str) -> Launch:
    text = (files("tilewise.hwdb") / "launch.toml").read_text(encoding="utf-8")
    return _launch(tomllib.loads(text)[mode], Trust.DATASHEET)


def _launch(entry: Mapping[str, Any], trust: Trust) -> Launch:
    issue_low, issue, issue_high = entry["issue_s"]
    gap_low, gap, gap_high = entry["gap_s"]
    return Launch(issue, issue_low, issue_high, gap, gap_low, gap_high, trust, entry.get("source", "calibration"))
