"""What a step costs besides its kernels' own times, by execution mode: the CPU's issuing, and the GPU's gaps between kernels.

The CPU is the host's, not the GPU's: a calibration knows the host it ran on, launch.toml how far others lie from it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import Trust

MODES = ("eager", "compiled", "graph")
Range = tuple[float, float, float]  # low, value and high of a 90 % interval


class Launch(Record):
    """Seconds, each a 90 % range.

    issue_s: CPU time to issue one kernel; a step lasts max(GPU busy, CPU issue)
    gap_s:   GPU idle time between two kernels of a queue that never runs dry
    call_s:  CPU time of a step besides its kernels; pause_s: GPU idle time between two steps of a queue that never runs dry
    plan_s:  CPU time in which cuDNN plans attention over a length that the process has not met
    """

    issue_s: Range
    gap_s: Range
    call_s: Range
    pause_s: Range
    plan_s: Range
    trust: Trust
    source: str

    def times(self, factor: float) -> Launch:
        """The same on a host that takes `factor` times as long, known as well as one's own measurement can tell."""
        low, high = _facts()["own"]["range"]

        def scaled(seconds: Range) -> Range:
            return factor * seconds[1] * low, factor * seconds[1], factor * seconds[1] * high

        return replace(
            self,
            issue_s=scaled(self.issue_s),
            call_s=scaled(self.call_s),
            plan_s=scaled(self.plan_s),
            source="as asked",
        )

    def elsewhere(self, factor: float) -> Launch:
        """The same of another host, which may be quicker or slower by `factor`."""
        names = ("issue_s", "gap_s", "call_s", "pause_s", "plan_s")
        wider = {
            name: (low / factor, value, high * factor) for name in names for low, value, high in [getattr(self, name)]
        }
        return replace(self, **wider, trust=Trust.DATASHEET, source=f"another host's: {self.source}")


def launch(
    mode: str, model: Mapping[str, Any] | None = None, *, training: bool = False, issue_s: float = 0.0
) -> Launch:
    """Launch cost of a mode: of a calibration's launch model (hwdb/kernels/launch.py) or published.

    issue_s: what the asker's host takes to issue one kernel of eager code; 0: not known
    Raises InvalidInput (UNKNOWN_MODE).
    """
    if mode not in MODES:
        message = f"execution mode {mode!r} is not one of {', '.join(MODES)}"
        raise InvalidInput(message, reason="UNKNOWN_MODE", field="workload.mode", mode=mode)
    measured = model or {}
    found = _launch(mode, measured, training)
    return found.times(issue_s / _launch("eager", measured, training).issue_s[1]) if issue_s else found


def _launch(mode: str, measured: Mapping[str, Any], training: bool) -> Launch:
    facts = _facts()
    known = facts[mode] | (_known(measured[mode]) if mode in measured else {"trust": "datasheet"})
    known |= facts[mode].get("train", {}) if training else {}
    low, value, high = known["issue_s"]
    return Launch(
        issue_s=(min(low, facts["hosts"]["fastest"] * value), value, high), gap_s=tuple(known["gap_s"]), call_s=tuple(known["call_s"]),
        pause_s=tuple(known["pause_s"]), plan_s=tuple(measured.get("plan", facts["plan"])["time_s"]),
        trust=Trust[str(known["trust"]).upper()], source=known["source"],
    )  # fmt: skip


def _known(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a calibration knows of a mode; one that lacks it knows nothing, and must not fall back on what is published."""
    named = {"trust": "measured", "source": "calibration", **entry}
    return {name: named[name] for name in ("issue_s", "gap_s", "trust", "source")}


@cache
def _facts() -> dict[str, Any]:
    """launch.toml."""
    return tomllib.loads((files("tilewise.hwdb") / "launch.toml").read_text(encoding="utf-8"))
