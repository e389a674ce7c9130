"""The law of a memory-bound kernel: a floor, then the slowest of three walls, joined smoothly.

time = floor + column x cols + (chip^p + memory^p + rows^p)^(1/p)
chip:   all bytes over what SMs and L2 move for this kernel (its index arithmetic included)
memory: the bytes that miss L2 over device memory
rows:   rows over the blocks that run at once (a block a row)
A kernel has these five constants twice where rows that are no whole vectors take a slower path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.table import Floats, Ints, OperatorTable, Residency

JOIN = 6.0  # exponent p
HOT, GONE = 0.36, 1.24  # of L2: a footprint up to here stays, beyond there nothing does; between, in proportion
VECTOR = 4  # elements that a thread loads at once in row kernels
ENDLESS = 1e15  # sets of inputs that never come round again
CONSTANTS = 5  # floor_s, chip and memory bytes per second, seconds per row, seconds per column
START = np.array([1.3e-6, 5e12, 3e12, 2e-11, 5e-11])
NOTHING = 1e-16  # seconds a row and a column of a kernel to which only the bytes matter
PRIOR = np.array([0.05, 0.1, 0.2, 0.01, 0.01])  # weight of a log distance from the class, in log errors
UNALIGNED_MIN = 5  # points of either kind below which a kernel has one set of constants


@dataclass(frozen=True, slots=True)
class Work:
    """Rows as the law sees them; arrays of shape (rows,).

    missed: bytes that come from or go to device memory; aligned: 0 where a row is no whole number of vectors
    """

    rows: Floats
    cols: Floats
    read: Floats
    written: Floats
    missed: Floats
    aligned: Ints

    def __getitem__(self, rows: NDArray[np.bool_] | Ints) -> Work:
        return Work(*(getattr(self, name)[rows] for name in self.__slots__))


def work(table: OperatorTable, l2_bytes: float, sets: Floats | None = None) -> Work:
    """Work of every row. sets: how many sets of inputs rotated in a measurement; without it, endlessly many."""
    read, written = table.bytes_read, table.bytes_written
    both = read + written
    cold, warm = table.residency == Residency.COLD, table.residency == Residency.WARM
    rounds = np.where(warm, 1.0, ENDLESS) if sets is None else sets
    between_reads = np.where(rounds > 1, np.where(cold, both, read) * rounds + written, both)
    between_writes = np.where(cold, np.maximum(both, 1.0) * rounds, both)
    missed = read * _miss(between_reads, l2_bytes) + written * _miss(between_writes, l2_bytes)
    cols = np.maximum(table.cols, 1.0)
    return Work(np.maximum(table.rows, 1.0), cols, read, written, missed, (cols % VECTOR == 0).astype(np.int64))


def _miss(footprint: Floats, l2_bytes: float) -> Floats:
    """Part of the accesses that miss after `footprint` bytes passed through L2."""
    return np.clip((footprint / l2_bytes - HOT) / (GONE - HOT), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Walls:
    """Seconds of each part; arrays of shape (rows,)."""

    floor_s: Floats
    latency_s: Floats
    chip_s: Floats
    memory_s: Floats
    rows_s: Floats

    @property
    def time_s(self) -> Floats:
        top = np.maximum(np.maximum(self.chip_s, self.memory_s), self.rows_s)
        top = np.maximum(top, 1e-12)
        parts = _sixth(self.chip_s / top) + _sixth(self.memory_s / top) + _sixth(self.rows_s / top)
        joined: Floats = top * parts ** (1 / JOIN)
        return self.floor_s + self.latency_s + joined


def _sixth(x: Floats) -> Floats:
    cube = x * x * x
    return cube * cube


def walls(constants: Floats, w: Work) -> Walls:
    """The law's parts; constants: one set, shape (5,), or one a row, shape (5, rows)."""
    floor, chip, memory, row, column = constants
    both = w.read + w.written
    return Walls(
        floor_s=floor + 0.0 * both,
        latency_s=column * w.cols,
        chip_s=both / chip,
        memory_s=w.missed / memory,
        rows_s=w.rows * row,
    )


def fit(w: Work, measured_s: Floats, kernel: Ints, kinds: Ints, by_row: NDArray[np.bool_]) -> Floats:
    """Constants of every kernel, shape (kernels, 2, 5). kinds, by_row: of each kernel, shape (kernels,).

    A class is fitted first, and its kernels around it: few points move a kernel little. by_row: a block works on a
    row; else only the bytes matter.
    """
    found = np.full((len(kinds), 2, CONSTANTS), NOTHING)
    for kind in np.unique(kinds):
        members = np.flatnonzero(kinds == kind)
        rows = np.isin(kernel, members)
        common = _constants(w[rows], measured_s[rows], np.log(START[: CONSTANTS if by_row[members[0]] else 3]))
        for one in members:
            found[one, :, : len(common)] = np.exp(_both(w, measured_s, kernel == one, common))
    return found


def _both(w: Work, measured_s: Floats, mine: NDArray[np.bool_], common: Floats) -> Floats:
    """Logs of a kernel's constants for unaligned and aligned rows."""
    whole = _constants(w[mine], measured_s[mine], common)
    found = np.stack([whole, whole])
    counts = [int((mine & (w.aligned == aligned)).sum()) for aligned in (0, 1)]
    if len(common) == CONSTANTS and min(counts) >= UNALIGNED_MIN:
        for aligned in (0, 1):
            rows = mine & (w.aligned == aligned)
            found[aligned] = _constants(w[rows], measured_s[rows], whole)
    return found


def _constants(w: Work, measured_s: Floats, prior: Floats) -> Floats:
    from scipy.optimize import least_squares

    full = np.full(CONSTANTS, NOTHING)

    def errors(logs: Floats) -> Floats:
        full[: len(logs)] = np.exp(logs)
        off = np.log(walls(full, w).time_s / measured_s)
        return np.concatenate([off, PRIOR[: len(logs)] * (logs - prior)])

    found: Floats = least_squares(errors, prior, loss="soft_l1", f_scale=0.03).x
    return found
