"""From a fitted answer to Times: wider intervals where a row rests on less, refusal where it lies outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewise.hwdb.kernels.learning import extrapolation, regression
from tilewise.hwdb.kernels.learning.residual import OPEN, Work
from tilewise.hwdb.table import Floats, Ints, OperatorTable
from tilewise.hwdb.times import Times, Trust, Wall, merge


def times(
    answer: regression.Answer, widened: Floats, work: Work, floor_s: Floats, trust: Ints, software: Ints,
    model: Mapping[str, Any],
) -> Times:  # fmt: skip
    """Times that hold for the `software` of each row, by its place in the model's list.

    widened: what is added to the half-width of log(time); the model's `unsure` joins it as an error of its own does
    """
    own = np.log(answer.high_s / answer.time_s) + widened
    widened = np.hypot(own, float(model.get("unsure", 0.0))) - own + widened
    names = OPEN(model).software.names
    strange = np.isnan(answer.distance)
    blank = np.where(strange, np.nan, 1.0)
    near = extrapolation.trust(answer.distance, str(model["law"]), max(Trust))
    total = np.maximum(work.compute_s, work.memory_s)
    scale = np.maximum(answer.time_s - floor_s, 0.1 * answer.time_s) / total
    none = np.zeros(len(strange))
    walls = np.array([work.compute_s * scale, work.memory_s * scale, none, np.minimum(floor_s, answer.time_s)])
    return Times(
        time_s=answer.time_s * blank, low_s=answer.low_s * np.exp(-widened) * blank,
        high_s=answer.high_s * np.exp(widened) * blank, compute_s=walls[Wall.COMPUTE], memory_s=walls[Wall.MEMORY],
        special_s=none, launch_s=walls[Wall.LAUNCH], padding_s=none, wave_s=none, alignment_s=none,
        wall=walls.argmax(0), trust=np.minimum(trust, near).astype(np.int64), distance=answer.distance,
        kernel=software, tiles=work.tiles, waves=work.waves, refusal=np.where(strange, 0, -1), kernel_names=names,
        refusals=(REFUSAL,) if strange.any() else (),
    )  # fmt: skip


REFUSAL = "NOT_MEASURED: no shape was published for this software"


def or_else(table: OperatorTable, times: Times, other: Callable[[OperatorTable], Times]) -> Times:
    """`times`, but `other` where a row is refused that named no software: somebody's kernel will run it."""
    rows = np.flatnonzero(times.refused & (table.library == 0))
    if not len(rows):
        return times
    rest = np.delete(np.arange(len(table)), rows)
    return merge(len(table), [(rest, times.select(rest)), (rows, other(table.select(rows)))])
