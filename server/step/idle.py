"""The time of a step in which no kernel runs, as rows beside its layers: with them the layers add up to the step."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan

from tilewise.hwdb.times import Trust, Wall
from tilewise.server.step.losses import CAUSES
from tilewise.server.step.report import Interval, Layer
from tilewise.server.step.time import Sums

IDLE, ISSUE = "idle", "issue"  # gaps between kernels; waiting until the CPU has issued the next one
ROUNDING = 1e-9  # of the step's time


def idle_layers(total: Sums, trust: Trust) -> Iterator[Layer]:
    """Of one step; trust: in what a launch costs. Its uncertainty goes to the row that decides the step's time."""
    busy, step, gaps = (float(each[0]) for each in (total.busy_s, total.time_s, total.gap_s))
    low, high = (max(float(each[0]) - busy, 0.0) for each in (total.launch_low_s, total.launch_high_s))
    wait, least = step - busy - gaps, ROUNDING * step
    waits = wait > least
    if gaps > least:
        yield _layer(IDLE, Interval(gaps, gaps, gaps) if waits else Interval(gaps, max(low, least), high), step, trust)
    if waits:
        yield _layer(ISSUE, Interval(wait, min(max(low - gaps, least), wait), high - gaps), step, trust)


def _layer(name: str, time: Interval, step_s: float, trust: Trust) -> Layer:
    return Layer(
        name=name, time=time, share=time.time_s / step_s, wall=Wall.LAUNCH, walls=_only(len(Wall), Wall.LAUNCH, time),
        losses=_only(len(CAUSES), CAUSES.index("launch"), time), mfu=None, mbu=0.0, flops=0.0, memory_bytes=0.0,
        launches=0.0, trust=trust, distance=nan,
    )  # fmt: skip


def _only(size: int, at: int, time: Interval) -> tuple[float, ...]:
    return tuple(time.time_s if place == at else 0.0 for place in range(size))
