"""The time of a step from what its kernels are busy for and what launching them costs; one entry a candidate shape.

A step lasts as long as its kernels with the gaps between them, or as the CPU takes to issue them, whichever is longer. What
is issued before the host waits for the GPU finds an empty queue: there, issuing adds to the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.launch import Launch
from tilewise.hwdb.table import Floats, Kind, Layout, OperatorTable
from tilewise.hwdb.times import Times
from tilewise.server.operators.conventions import by_shape
from tilewise.server.step.intervals import bounds

# cuBLAS's persistent Hopper kernels clear a tile counter first where their tiles make more waves than this
TWO_WAVES = 2
BEFORE_SYNC = "positions"  # layer of what eager transformers does before it asks the GPU whether the batch is packed


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals of a table, one entry a candidate shape.

    low_s, high_s: at the bounds of the kernels' times and of the launch cost; launch_low_s, launch_high_s: of the launch cost alone
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


def step_sums(gpu: Gpu, mode: str, table: OperatorTable, times: Times, launched: Floats) -> Sums:
    """Times of the steps of a table; `launched`: kernels of one execution of each row, as `launches` has them."""
    busy = by_shape(table, times.time_s)
    below, above = bounds(table.shape, table.shapes, table.count, times)
    cost, number = gpu.launch(mode), by_shape(table, launched)
    drained = by_shape(table, np.where(before_sync(table), launched, 0.0))
    usual, least, most = _launch_bounds(cost, number, drained)
    return Sums(
        busy_s=busy, busy_low_s=busy - below, busy_high_s=busy + above, launches=number, gap_s=usual[0], issue_s=usual[1],
        time_s=_lasts(busy, usual), low_s=_lasts(busy - below, least), high_s=_lasts(busy + above, most),
        launch_low_s=_lasts(busy, least), launch_high_s=_lasts(busy, most),
    )  # fmt: skip


def _launch_bounds(cost: Launch, number: Floats, drained: Floats) -> list[tuple[Floats, Floats]]:
    """(seconds of gaps, of issuing) of all kernels: as usual, at least and at most."""
    each = (cost.gap_s, cost.issue_s), (cost.gap_low_s, cost.issue_low_s), (cost.gap_high_s, cost.issue_high_s)
    return [(number * gap + drained * issue, number * issue) for gap, issue in each]


def _lasts(busy: Floats, launch: tuple[Floats, Floats]) -> Floats:
    gaps, issue = launch
    time: Floats = np.maximum(busy + gaps, issue)
    return time


def launches(table: OperatorTable, gpu: Gpu) -> Floats:
    """Kernels one execution of each row launches, the memsets before persistent GEMMs counted; shape (rows,).

    The tile is the one cuBLAS mostly chooses on Hopper: 256 x 128 forward, 320 x 128 for gradients, 384 wide for a few
    rows; a predicted kernel would be right less often. Operands off 16 bytes get other kernels, without a counter.
    """
    if gpu.sku.generation != "hopper":  # whose counters and tiles these are; of other generations none were seen
        return table.kernels
    gemm = table.kind == Kind.GEMM
    aligned = (table.n % 8 == 0) & (table.k % 8 == 0) & ((table.layout != Layout.WEIGHT_GRADIENT) | (table.m % 8 == 0))
    tile = np.where(table.layout == Layout.FORWARD, 256.0 * 128, 320.0 * 128)
    tiles = np.where(table.m <= 64, table.n / 384.0, table.m * table.n / tile)
    launched: Floats = table.kernels + (gemm & aligned & (tiles > TWO_WAVES * gpu.sku.sm_count))
    return launched


def before_sync(table: OperatorTable) -> NDArray[np.bool_]:
    """Rows whose kernels are issued with none queued: the answer makes the host wait until the GPU is idle."""
    first = [code for code, label in enumerate(table.labels) if label.layer == BEFORE_SYNC]
    return np.isin(table.label, first) if first else np.zeros(len(table), bool)
