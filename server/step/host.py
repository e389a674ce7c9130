"""What the CPU beside the GPU adds to a step, said where it decides the time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress

import numpy as np

from tilewise.server.architecture.sizes import column
from tilewise.server.operators.numbers import Notes
from tilewise.server.step.steps import Steps
from tilewise.server.step.time import HIGH, LOW, VALUE, plans


def host_notes(steps: Steps, candidates: int = 1) -> Iterator[Notes]:
    """Notes on each candidate: on the host's speed where its CPU decides the time, and on what cuDNN plans."""
    work, sums = steps.workload, steps.sums
    waits = sums.issue_s > sums.busy_s + sums.gap_s
    planned = plans(steps.table, steps.times) > 0 if work.mode == "eager" else np.zeros(steps.table.shapes, bool)
    said = host(steps) if waits.any() else "", planning(steps) if planned.any() else ""
    for when in zip(column(waits, candidates), column(planned, candidates), strict=True):
        yield dict.fromkeys(compress(said, when))


def host(steps: Steps) -> str:
    work = steps.workload
    cost = steps.gpu.launch("eager", issue_s=1e-6 * work.issue_us).issue_s
    low, value, high = (f"{1e6 * cost[end]:.0f}" for end in (LOW, VALUE, HIGH))
    if work.issue_us:
        return f"the CPU decides this step's time: {value} us to issue an eager kernel, as asked"
    return (
        f"the CPU decides this step's time: {value} us to issue an eager kernel on the host that was measured, {low} to {high} on others; "
        "`tilewise calibrate run --only launch` measures yours, --issue-us says it"
    )


def planning(steps: Steps) -> str:
    seconds = steps.gpu.launch("eager", issue_s=1e-6 * steps.workload.issue_us).plan_s[VALUE]
    return (
        f"cuDNN plans attention on the CPU for each length of the cache that the process has not met: {1e3 * seconds:.0f} ms of this step; "
        "flash attention (--attention-backend flash) and a static cache need no plan"
    )
