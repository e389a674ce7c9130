"""The law of a memory-bound kernel: a floor, then the slowest of three walls, joined smoothly.

time = floor + latency + rows + sqrt(chip^2 + memory^2); in one kernel, rows under the root
latency: column x cols: a block walks through its row
chip:   all bytes over what the SMs move for this kernel, its index arithmetic included
memory: the bytes that miss L2 over device memory, and those that hit over L2; a row kernel reads its rows again, from
        device memory where the rows in flight do not fit L2
rows:   rows over the blocks that run at once (a block a row)
A kernel has these constants for each of its paths: where rows are no whole vectors it takes a slower path, a stream that
ends in a part of a block ends later, and a copy of whole 512 MiB is slower (as if it camped on few channels).
An optimizer's launches over lists of tensors stand for rows; a block walks through its chunk while others' bytes pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels.memory.choice import Traits
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, VARIANT_CODES, Floats, Ints, OperatorTable, Residency

L2_OVER_HBM = 3.0  # rate of what hits L2, over the datasheet's device memory
MISS_S = 0.4e-6  # what the first miss costs: a stream from device memory starts later
HOT, GONE = 0.54, 1.03  # of L2: a footprint up to here stays, beyond there nothing does; between, in proportion
# What lies between a kernel's writing and the next one's reading, over what either touches: eight kernels in a row, as eager
# RMS norms, on the H100 and the H200: their sum is 9 % off without what they hand over, 3.2 with 1.0 of it, 2.4 with 1.4
HANDED = 1.4
VECTOR = 4  # elements that a thread loads at once in row kernels
BLOCK = 1024  # elements of a block of an elementwise kernel; a rest goes a slower way
COPY, CAMPING_BYTES = OP_CODES["copy"], 2**29  # whole multiples of these are copied at 2.4 instead of 3.0 TB/s
IN_PLACE = VARIANT_CODES["in_place"]
LAUNCH_TENSORS, LAUNCH_CHUNKS = 36, 320  # that one launch over lists of four tensors takes (MultiTensorApply.cuh)
ENDLESS = 1e15  # sets of inputs that never come round again
CONSTANTS = 6  # floor_s, chip and memory bytes per second, seconds per row, seconds per column, passes again
START = np.array([1.1e-6, 8e12, 3.2e12, 2e-10, 5e-11, 0.7])
START_LAUNCHES = np.array([1.1e-6, 8e12, 3.2e12, 3e-6, 4e-10, 0.7])  # a launch where others have a row
TAIL_S = 1.5e-7  # a last, unfinished block of a stream, before any is measured
NOTHING = 1e-16  # seconds a row and a column of a kernel to which only the bytes matter
# weights of a log distance from the class, in log errors
ROW_PRIOR = np.array([0.03, 0.03, 0.1, 0.01, 0.01, 0.03])
STREAM_PRIOR = np.array([0.05, 0.08, 0.2, 0.3, 0.05])
LONG = 8192  # columns from which a reduction takes a whole block
# Columns up to which a softmax stays in a warp (of eight elements a lane and of 64), in the registers of two blocks
# and of one block an SM; longer rows pass through shared memory (PersistentSoftmax.cuh, SoftMax.cu; read off times)
SOFTMAX_COLS = np.array([1024, 2048, 6144, 9216])
WARP_COLS = 1024  # elements that a radix sort handles at a time, here the unit of its cost
CHOSEN_BYTES = 12  # of a value and its index, for each of the k that a selection keeps
PATHS = 5  # that a kernel may have
PATH_MIN = 3  # points of either kind below which a kernel has one set of constants


class Work(Record):
    """Rows as the law sees them; arrays of shape (rows,).

    missed: bytes that come from or go to device memory
    again: bytes of one more pass over the input that come from device memory
    units: what a kernel's cost by rows is counted in
    walk:  columns that one lane of 32 would walk through; path: which of a kernel's paths a row takes
    launched: units are launches over lists of tensors
    """

    rows: Floats
    cols: Floats
    read: Floats
    written: Floats
    missed: Floats
    again: Floats
    units: Floats
    walk: Floats
    path: Ints
    overlap: Floats
    launched: NDArray[np.bool_]
    l2_bytes_per_s: float

    def __getitem__(self, rows: NDArray[np.bool_] | Ints) -> Work:
        return replace(self, **{name: getattr(self, name)[rows] for name in self.__struct_fields__[:-1]})


def work(table: OperatorTable, traits: Traits, sku: Sku, sets: Floats | None = None) -> Work:
    """Work of every row. traits: of its class; sets: how many sets of inputs rotated in a measurement; without it, endlessly many."""
    read, written = table.bytes_read, table.bytes_written
    both = read + written
    cold, warm = table.residency == Residency.COLD.value, table.residency == Residency.WARM.value
    rounds = np.where(warm, 1.0, ENDLESS) if sets is None else sets
    in_place = (table.variant == IN_PLACE) | (traits.chunk > 0)
    touched = np.where(in_place, np.maximum(read, written), both)
    between_reads = np.where(rounds > 1, np.where(cold, touched, read) * rounds + written, touched)
    between_writes = np.where(cold, np.maximum(touched, 1.0) * rounds, touched)
    recent = table.recent_bytes
    missed = (read - recent) * _miss(between_reads / sku.l2_bytes) + recent * _miss(HANDED * touched / sku.l2_bytes)
    missed += written * _miss(between_writes / sku.l2_bytes)
    rows, cols = np.maximum(table.rows, 1.0), np.maximum(table.cols, 1.0)
    launched = traits.chunk > 0
    launches = np.where(launched, np.ceil(_launches(rows, cols, traits)), 1.0)
    kept = written / (CHOSEN_BYTES * rows)
    serial, parts = _column_sum(rows, cols, sku)
    path = _paths(table.op == COPY, read, rows, cols, kept, parts, traits)
    units = np.where(launched, launches, np.minimum(rows, traits.rows_at_most))
    units = np.where((traits.sorted_beyond > 0) & (path == 0), rows * cols / WARP_COLS, units)
    units = np.where(traits.warp_steps, rows * np.ceil(cols / 32), units)
    units = np.where(traits.few_sums, written, units)
    return Work(
        rows=rows,
        cols=cols,
        read=read,
        written=written,
        missed=missed,
        again=_again(table, rows, traits, sku),
        units=units,
        walk=_walk(rows, cols, launches, serial / parts * (1 + missed / np.maximum(both, 1.0)), traits),
        path=path,
        overlap=(traits.few_sums | (traits.one_kernel & (path == 1))).astype(float),
        launched=launched,
        l2_bytes_per_s=L2_OVER_HBM * sku.hbm_bytes_per_s,
    )


def _again(table: OperatorTable, rows: Floats, traits: Traits, sku: Sku) -> Floats:
    """Bytes of one more pass over the input that come from device memory: where the rows in flight overflow L2."""
    both = table.bytes_read + table.bytes_written
    in_flight = both / rows * np.minimum(rows, traits.rows_in_flight * sku.sm_count)
    again = np.where(traits.chunk > 0, 0.0, table.bytes_read * _miss(in_flight / sku.l2_bytes))
    return np.where(traits.picks, _picked_again(table, sku), again) if traits.picks.any() else again


def _walk(rows: Floats, cols: Floats, launches: Floats, summed: Floats, traits: Traits) -> Floats:
    """Columns that one lane of 32 walks through: a whole row, a warp's share of it, a part of a split sum, a chunk.

    summed: rows that a thread adds in a sum over rows; what it waits for at each is farther away where it is not in L2
    """
    shared = np.where(cols < LONG, np.minimum(np.maximum(rows, 1), 16), 1.0) / 16
    walk = np.where(traits.warp_walk, np.minimum(cols, LONG) * shared, cols)
    walk = np.where(traits.splits, summed, walk)
    return np.where(traits.chunk > 0, np.minimum(cols, traits.chunk) * launches, walk)


def _column_sum(rows: Floats, cols: Floats, sku: Sku) -> tuple[Floats, Floats]:
    """Rows that a thread adds in a sum over rows, and the blocks that share a column (setReduceConfig in Reduce.cuh)."""
    width = np.where(cols % 4 == 0, 4, np.where(cols % 2 == 0, 2, 1))  # columns that a thread takes at once
    height = np.minimum(16 / width, 2 ** np.floor(np.log2(rows)))  # warps of a block
    serial = np.where(rows >= np.minimum(16 * height, 256), np.ceil(rows / height), rows)
    grid = np.ceil(cols / (32 * width))
    room = sku.sm_count * 2048 / (32 * height)
    parts = np.maximum(np.minimum(np.ceil(room / grid), np.ceil(serial / 16)), np.ceil(serial / 256))
    return serial, np.where((serial >= 256) & (grid <= room), parts, 1.0)


def _paths(
    copies: NDArray[np.bool_], read: Floats, rows: Floats, cols: Floats, kept: Floats, parts: Floats, traits: Traits
) -> Ints:
    """Which of its kernel's paths a row takes; a later trait overrules an earlier one. kept, parts: of a selection, of a sum over rows."""
    whole = np.where(traits.rows_in_flight > 0, cols % VECTOR == 0, rows * cols % BLOCK == 0)
    path = whole.astype(np.int64)
    path = np.where(copies & (read >= CAMPING_BYTES) & (read % CAMPING_BYTES == 0), 2, path)
    path = np.where(traits.looped_beyond > 0, cols > traits.looped_beyond, path)
    path = np.where(traits.softmax_paths, np.searchsorted(SOFTMAX_COLS, cols), path)
    path = np.where(traits.splits, parts > 1, path)
    path = np.where(traits.warp_steps, kept > 1, path)  # one is found, several are sorted as well
    return np.where(traits.sorted_beyond > 0, rows <= traits.sorted_beyond, path).astype(np.int64)


def _picked_again(table: OperatorTable, sku: Sku) -> Floats:
    """Bytes of rows picked more than once from (or into) a table that L2 cannot hold; bf16."""
    touched = np.minimum(table.bytes_read, table.bytes_written)
    held = np.minimum(HOT * sku.l2_bytes / np.maximum(touched, 1.0), 1.0)
    again: Floats = np.maximum(2.0 * table.rows * table.cols - touched, 0.0) * (1 - held)
    return again


def _launches(rows: Floats, cols: Floats, traits: Traits) -> Floats:
    """Launches that update `rows` tensors of `cols` elements, in parts: each takes so many tensors and chunks."""
    chunks = rows * np.ceil(cols / np.maximum(traits.chunk, 1.0))
    return np.maximum(rows / LAUNCH_TENSORS, chunks / LAUNCH_CHUNKS)


def _miss(footprint: Floats) -> Floats:
    """Part of the accesses that miss after so many times L2 passed through it."""
    found: Floats = np.minimum(np.maximum((footprint - HOT) / (GONE - HOT), 0.0), 1.0)
    return found


class Walls(Record):
    """Seconds of each part; arrays of shape (rows,). hidden_s: of rows or latency, what passes while bytes do."""

    floor_s: Floats
    latency_s: Floats
    chip_s: Floats
    memory_s: Floats
    rows_s: Floats
    hidden_s: Floats

    @property
    def time_s(self) -> Floats:
        joined: Floats = np.sqrt(self.chip_s**2 + self.memory_s**2 + self.hidden_s**2)
        return self.floor_s + self.latency_s + self.rows_s - self.hidden_s + joined


def walls(constants: Floats, w: Work) -> Walls:
    """The law's parts; constants: one set, shape (6,), or one a row, shape (6, rows)."""
    floor, chip, memory, row, column, again = constants
    both = np.maximum(w.read + w.written, 1.0)
    return Walls(
        floor_s=floor + 0.0 * both,
        latency_s=column * w.walk,
        chip_s=both / chip,
        memory_s=(w.missed + again * w.again) / memory
        + (both - w.missed) / w.l2_bytes_per_s
        + MISS_S * w.missed / both,
        rows_s=w.units * row,
        hidden_s=np.where(w.launched, column * w.walk, w.overlap * w.units * row),
    )


def fit(w: Work, measured_s: Floats, kernel: Ints, kinds: Ints, by_row: NDArray[np.bool_]) -> Floats:
    """Constants of every kernel, shape (kernels, 3, 6). kinds, by_row: of each kernel, shape (kernels,).

    A class is fitted first, and its kernels around it: few points move a kernel little. by_row: a block works on a
    row; else only the bytes matter.
    """
    found = np.full((len(kinds), PATHS, CONSTANTS), NOTHING)
    for kind in np.unique(kinds):
        members = np.flatnonzero(kinds == kind)
        rows = np.isin(kernel, members)
        fit_one = _rows if by_row[members[0]] else _stream
        common = fit_one(w[rows], measured_s[rows], None)
        for one in members:
            mine = kernel == one
            found[one] = fit_one(w[mine], measured_s[mine], common)
    return found


def _stream(w: Work, measured_s: Floats, prior: Floats | None) -> Floats:
    """Constants of a stream, shape (3, 6): a floor of its own for a rest of a block, a memory rate for camping copies."""
    before = np.array([*START[:3], TAIL_S, 1.0])
    if prior is not None:
        before = np.array([*prior[1, :3], prior[0, 0] - prior[1, 0], prior[2, 2] / prior[1, 2]])

    def paths(values: Floats) -> Floats:
        full = np.full((PATHS, CONSTANTS), NOTHING)
        full[:, :3] = values[:3]
        full[0, 0] += values[3]
        full[2, 2] *= values[4]
        return full

    return paths(_solve(before, STREAM_PRIOR, lambda values: walls(paths(values)[w.path].T, w).time_s, measured_s))


def _rows(w: Work, measured_s: Floats, prior: Floats | None) -> Floats:
    """Constants of a row kernel, shape (3, 6): each path its own, where enough of it was measured."""
    start = START_LAUNCHES if w.launched.any() else START
    whole = _solve(start if prior is None else prior[1], ROW_PRIOR, partial(_seconds, w), measured_s)
    found = np.stack([whole] * PATHS)
    for path in range(PATHS):
        if prior is not None and PATH_MIN <= (w.path == path).sum() < len(measured_s):
            law = partial(_seconds, w[w.path == path])
            found[path] = _solve(whole, ROW_PRIOR, law, measured_s[w.path == path])
    return found


def _seconds(w: Work, constants: Floats) -> Floats:
    return walls(constants, w).time_s


def _solve(before: Floats, weight: Floats, law: Callable[[Floats], Floats], measured_s: Floats) -> Floats:
    """Constants near `before` that bring the law's logs near the measured; far points pull little."""
    from scipy.optimize import least_squares

    def errors(logs: Floats) -> Floats:
        return np.concatenate([np.log(law(np.exp(logs)) / measured_s), weight * (logs - np.log(before))])

    found: Floats = np.exp(least_squares(errors, np.log(before), loss="soft_l1", f_scale=0.02).x)
    return found
