"""Where the time of a step goes: the way from its model FLOPs at the peak to the time it takes, cause by cause."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.kinds import multiplies
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Peak
from tilewise.hwdb.table import Floats, Ints, OperatorTable
from tilewise.hwdb.times import Times, Wall

# useful: model FLOPs at the dense peak; extra: FLOPs that the model does not ask for (recompute, scores of a backward);
# padding, wave, alignment: tiles beyond the matrix, a last wave that does not fill the GPU, operands off the fast kernels;
# kernel: matrix kernels below the peak for any other reason (clock, epilogue, main loop); then the other walls
CAUSES = (
    "useful", "extra", "padding", "wave", "alignment", "kernel", "bandwidth", "special_function", "launch",
    "communication",
)  # fmt: skip
OF_WALL = {
    Wall.COMPUTE: "kernel",
    Wall.MEMORY: "bandwidth",
    Wall.SPECIAL_FUNCTION: "special_function",
    Wall.LAUNCH: "launch",
    Wall.COMMUNICATION: "communication",
}
_CAUSE_OF_WALL = np.array([CAUSES.index(OF_WALL[wall]) for wall in Wall])
_LAUNCH = CAUSES.index("launch")


def summed(lost: Floats, idle_s: Floats, group: Ints, size: int) -> Floats:
    """Seconds by cause of each group of rows, shape (len(CAUSES), size); lost: those of each row, repeats counted.

    `idle_s` of each group, in which the GPU waits between kernels or for the CPU, is lost to launches. All of it adds up to
    the step's time.
    """
    sums = np.array([np.bincount(group, row, size) for row in lost], float)
    sums[_LAUNCH] += idle_s
    return sums


def losses(table: OperatorTable, times: Times, peaks: dict[int, Peak]) -> Floats:
    """Seconds by cause of each row, repeats counted, shape (len(CAUSES), rows); refused rows have none.

    A row's rest, after its FLOPs at the peak and what its tiles lose, belongs to its own wall.
    """
    rate = np.full(len(Precision), np.inf)
    for code, peak in peaks.items():
        rate[code] = peak.flops_per_s
    per_row = np.where(multiplies(table), rate[table.precision], np.inf)
    time = times.known_s
    seconds = np.zeros((len(CAUSES), len(table)))
    seconds[0] = np.minimum(table.flops / per_row, time)
    seconds[1] = np.minimum(np.maximum(table.executed_flops - table.flops, 0) / per_row, time - seconds[0])
    tiles = np.where(times.refused, 0.0, [times.padding_s, times.wave_s, times.alignment_s])
    left = time - seconds[0] - seconds[1]
    seconds[2:5] = tiles * np.minimum(1.0, left / np.maximum(tiles.sum(axis=0), 1e-30))
    seconds[_CAUSE_OF_WALL[times.wall], np.arange(len(table))] = time - seconds[:5].sum(axis=0)
    return seconds * table.count
