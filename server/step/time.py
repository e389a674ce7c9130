"""The time of a step from what its kernels are busy for and what launching them costs; one entry a candidate shape.

A step lasts as long as its kernels with the gaps between them, or as the CPU takes to issue them, whichever is longer. What
is issued before the host waits for the GPU finds an empty queue: there, issuing adds to the time. An eager decode adds a token to
its cache at each step, and cuDNN plans attention anew for each length: that holds the CPU up too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import OPS, Floats, Kind, Layout, OperatorTable, Phase, mixed, present
from tilewise.hwdb.times import Times
from tilewise.server.operators.conventions import by_shape
from tilewise.server.operators.programs import AGREES, Program
from tilewise.server.step.intervals import bounds, programmed, served
from tilewise.server.workload import Workload

# cuBLAS's persistent Hopper kernels clear a tile counter first where their tiles make more waves than this
TWO_WAVES = 2
LOW, VALUE, HIGH = range(3)
# Of the calibrations' products 36 % are split up to 64 rows, 13 % up to 1,024, 1 % beyond, and 1 % of weight gradients: of those two
# a choice is mostly wrong
SPLIT_ROWS = 1024
SPLIT = "split-K"  # as hwdb/kernels/gemm/choice.py ends its names
INDEXED_BYTES = 2**31
WIDE = np.array([code in (Precision.FP32, Precision.TF32) for code in Precision])
STREAMS = "cast add mul pointwise pointwise_strided rope activation activation_backward transpose softmax_backward"
ELEMENTWISE = np.array([op in STREAMS.split() for op in OPS])
PLANNED_BY = ("batch", "heads", "kv_heads", "head_dim", "head_dim_v", "seq_kv")
# layer of what eager transformers does before it asks the GPU whether the batch is packed, and the operator that asks
BEFORE_SYNC, ASKS = "positions", "packed_check"


class Sums(Record):
    """Totals of a table, one entry a candidate shape.

    low_s, high_s: at the bounds of the kernels' times, of the launch cost and of the program; launch_low_s, launch_high_s: of the launch cost alone
    """

    busy_s: Floats
    busy_low_s: Floats
    busy_high_s: Floats
    launches: Floats
    gap_s: Floats
    issue_s: Floats
    time_s: Floats
    low_s: Floats
    high_s: Floats
    launch_low_s: Floats
    launch_high_s: Floats


def step_sums(
    gpu: Gpu, workload: Workload, table: OperatorTable, times: Times, launched: Floats, program: Program = AGREES
) -> Sums:
    """Times of the steps of a table; `launched`: kernels of one execution of each row, as `launches` has them."""
    busy, number = by_shape(table, times.time_s), by_shape(table, launched)
    below, above = programmed(busy, bounds(table.shape, table.shapes, table.count, times), program.time)
    if times.burst is not None and workload.phase != "train":
        below = np.maximum(below, busy - _least(table, times.burst, program))
    usual, least, most = _launching(gpu, workload, table, times, launched, number)
    fewest, largest = _scaled(least, program.launches[0]), _scaled(most, program.launches[1])
    time, low, high = _lasts(busy, usual), _lasts(busy - below, fewest), _lasts(busy + above, largest)
    low, high = served(time, low, high) if workload.program.engine else (low, high)
    return Sums(
        busy_s=busy, busy_low_s=busy - below, busy_high_s=busy + above, launches=number, gap_s=usual[0],
        issue_s=usual[1], time_s=time, low_s=low, high_s=high,
        launch_low_s=_lasts(busy, least), launch_high_s=_lasts(busy, most),
    )  # fmt: skip


def _least(table: OperatorTable, burst: Times, program: Program) -> Floats:
    """The least that kernels are busy for where the work is over before the clock has settled, some tenth of a second."""
    busy = by_shape(table, burst.time_s)
    below, _ = programmed(busy, bounds(table.shape, table.shapes, table.count, burst), program.time)
    return busy - below


def idle_s(gpu: Gpu, workload: Workload, table: OperatorTable, times: Times) -> Floats:
    """Seconds of each candidate's step in which no kernel runs."""
    launched = launches(table, gpu, times, workload.mode == "eager")
    busy = by_shape(table, times.time_s)
    usual, _, _ = _launching(gpu, workload, table, times, launched, by_shape(table, launched))
    return _lasts(busy, usual) - busy


def _launching(
    gpu: Gpu, workload: Workload, table: OperatorTable, times: Times, launched: Floats, number: Floats
) -> list[tuple[Floats, Floats]]:
    """(seconds of gaps, of the CPU) as usual, at least and at most; number: kernels of each step."""
    cost = gpu.launch(workload.mode, training=workload.phase == "train", issue_s=1e-6 * workload.issue_us)
    torch = not workload.program.engine  # an engine's scheduler is no part of its step
    drained = by_shape(table, np.where(before_sync(table), launched, 0.0))
    planning = plans(table, times) if workload.mode == "eager" else np.zeros(table.shapes)

    def at(end: int) -> tuple[Floats, Floats]:
        gaps = number * cost.gap_s[end] + drained * cost.issue_s[end] + torch * cost.pause_s[end]
        return gaps, number * cost.issue_s[end] + torch * cost.call_s[end] + planning * cost.plan_s[end]

    return [at(end) for end in (VALUE, LOW, HIGH)]


def _scaled(launch: tuple[Floats, Floats], factor: float) -> tuple[Floats, Floats]:
    gaps, issue = launch
    return factor * gaps, factor * issue


def _lasts(busy: Floats, launch: tuple[Floats, Floats]) -> Floats:
    gaps, issue = launch
    time: Floats = np.maximum(busy + gaps, issue)
    return time


def launches(table: OperatorTable, gpu: Gpu, times: Times, eager: bool = False) -> Floats:
    """Kernels one execution of each row launches, memsets before persistent GEMMs and sums behind split ones counted; shape (rows,).

    eager: elementwise kernels are torch's own, which take an operand of INDEXED_BYTES in parts (inductor's do not).

    The tile is the one cuBLAS mostly chooses on Hopper: 256 x 128 forward, 320 x 128 for gradients, 384 wide for a few
    rows; a predicted kernel would be right less often. Operands off 16 bytes get other kernels, without a counter.
    """
    if gpu.sku.generation != "hopper":  # whose counters and tiles these are; of other generations none were seen
        return table.kernels * pieces(table) if eager else table.kernels
    gemm = table.kind == Kind.GEMM.value
    aligned = (
        (table.n % 8 == 0) & (table.k % 8 == 0) & ((table.layout != Layout.WEIGHT_GRADIENT.value) | (table.m % 8 == 0))
    )
    tile = np.where(table.layout == Layout.FORWARD.value, 256.0 * 128, 320.0 * 128)
    tiles = np.where(table.m <= 64, table.n / 384.0, table.m * table.n / tile)
    launched: Floats = table.kernels + (gemm & aligned & (tiles > TWO_WAVES * gpu.sku.sm_count)) + split(table, times)
    return launched * pieces(table) if eager else launched


def pieces(table: OperatorTable) -> Floats:
    """Parts in which torch launches an elementwise operation: halved until 32 bits hold an operand's offsets (TensorIterator)."""
    elementwise = (table.kind == Kind.MEMORY.value) & ELEMENTWISE[table.op]
    large = elementwise & (np.maximum(table.bytes_read, table.bytes_written) > INDEXED_BYTES)
    if not large.any():
        return np.ones(len(table))
    element = np.where(WIDE[table.precision], 4.0, 2.0)
    largest = np.maximum(np.minimum(table.bytes_read, table.rows * table.cols * element), table.bytes_written)
    return np.where(large, 2 ** np.ceil(np.log2(np.maximum(largest / INDEXED_BYTES, 1))), 1.0)


def split(table: OperatorTable, times: Times) -> NDArray[np.bool_]:
    """Rows whose product is split along k, so that a second kernel adds its parts."""
    rows: NDArray[np.bool_] = (table.m <= SPLIT_ROWS) & (table.layout != Layout.WEIGHT_GRADIENT.value)
    return rows & _by_kernel(times, lambda name: name.endswith(SPLIT)) if rows.any() else rows


def before_sync(table: OperatorTable) -> NDArray[np.bool_]:
    """Rows whose kernels are issued with none queued: the answer makes the host wait until the GPU is idle."""
    if not any(label.name == ASKS for label in table.labels):
        return np.zeros(len(table), bool)
    return np.isin(table.label, [code for code, label in enumerate(table.labels) if label.layer == BEFORE_SYNC])


def planned(table: OperatorTable, times: Times) -> NDArray[np.bool_]:
    """Rows of attention over a cache that grows, by a kernel that cuDNN plans for each length.

    None with a window: a full one does not grow, and one that still did was not seen to plan (command-r7b in steps-4.csv, 4.9 ms a step).
    """
    found: NDArray[np.bool_] = (
        (table.kind == Kind.ATTENTION.value) & (table.phase == Phase.DECODE.value) & (table.window == 0)
    )
    return found & _by_kernel(times, lambda name: name.startswith("cudnn"))


def _by_kernel(times: Times, meant: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Rows whose kernel has a name that is meant."""
    found = np.zeros(len(times.kernel_names) + 1, bool)  # of some three thousand; the last for -1, no kernel
    for code in present(times.kernel):
        found[code] = code >= 0 and meant(times.kernel_names[code])
    return found[times.kernel]


def plans(table: OperatorTable, times: Times) -> Floats:
    """Shapes of attention that cuDNN plans in a step, each once, by candidate; layers that are alike share one."""
    rows = np.flatnonzero(planned(table, times))
    if not len(rows):
        return np.zeros(table.shapes)
    sizes = [getattr(table, name)[rows] for name in ("shape", *PLANNED_BY)]
    once = np.unique(mixed(sizes, len(rows)), return_index=True)[1]
    return np.bincount(sizes[0][once], minlength=table.shapes).astype(float)
