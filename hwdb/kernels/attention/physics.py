"""The time of an attention kernel from its grid: matrix and exponential rates, waves, bytes, the small kernels around it.

time = floor + join(compute, memory) + helpers. A step through one tile costs its multiply-adds over the matrix rate plus
its elements over the exponential rate (the mask costs some more); compute is the busiest SM's steps. Rates and overheads
are fitted for each kernel; the starting values and the priors stand in attention.toml.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewise.hwdb.kernels.attention.choice import CODES, KERNELS, Grid, Mask, facts
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints, OperatorTable, Phase

CONSTANTS: tuple[str, ...] = tuple(facts()["prior"])
PRIOR = np.log([facts()["prior"][name][0] for name in CONSTANTS])
TOLERANCE = np.array([facts()["prior"][name][1] for name in CONSTANTS])
EFFICIENCY, EFFICIENCY_TOLERANCE = np.log(facts()["efficiency"][0]), facts()["efficiency"][1]
WIDTH_TOLERANCE = facts()["efficiency"][2]
NOISE = 0.03  # log error beyond which a point pulls less; also the weight of the priors
FIT_TOLERANCE = np.array([1.0, 2.0, 2.0])  # of the width's: whole heads repeat better than others
FOLDS = 10
WIDTHS = 256 // 8 + 1
FITS = 3  # heads as wide as the kernel, padded, or with narrower values
BACKWARD = np.array([name.endswith("_bwd") for name in KERNELS])
COMBINED_BY_WIDTH = np.array([facts()["kernel"][name].get("combined_by_width", False) for name in KERNELS])
KEY_PRODUCTS = np.array([1.0, 3.0])  # matrix products over head_dim, forward and backward: Q K^T; dQ and dK
VALUE_PRODUCTS = np.array([1.0, 2.0])  # over head_dim_v: P V; dO V^T and dV
HELPER_CACHE = 1.0  # share of the L2 cache that still holds what the kernel before wrote
LOAD_BYTES_PER_CLOCK = 64.0  # from L2 into an SM
ELEMENT = 2.0  # bytes of bf16 and fp16


class Work(Record):
    """What a row asks of the GPU, whatever the rates; arrays of shape (rows,).

    products, loads, elements: clocks that one tile's matrix products, its loads from L2 and its exponentials take at full
               rates
    masked:    masked tiles of a block; ragged: columns end within a tile; local: every tile is masked (a window)
    wave:      blocks of the last wave that are missing, in waves; under a causal mask so far as its blocks are alike
    padded:    heads are narrower than the kernel, of which they fill `filled`
    bytes:     q, k, v, out once; helper_bytes: what the kernels before and after move
    helpers:   their number; partials: splits to be combined beyond the first, of heads 128 wide where the width counts
    """

    products: Floats
    loads: Floats
    elements: Floats
    masked: Floats
    ragged: Mask
    local: Mask
    causal: Mask
    wave: Floats
    padded: Mask
    filled: Floats
    bytes: Floats
    helper_bytes: Floats
    helpers: Floats
    partials: Floats


class Walls(Record):
    """Seconds of each part; time_s is the whole."""

    time_s: Floats
    compute_s: Floats
    special_s: Floats
    memory_s: Floats
    launch_s: Floats
    wave_s: Floats
    padding_s: Floats


def work(table: OperatorTable, grid: Grid, sku: Sku) -> Work:
    """Exact counts of a row on its grid."""
    rate = float(sku.flops_per_clock["bf16"].value)
    value = np.where(table.head_dim == table.head_dim_v, grid.width, np.minimum(table.head_dim_v, grid.width))
    backward = BACKWARD[grid.kernel].astype(int)
    area = np.asarray(grid.outer * grid.inner, np.float64)
    widths = grid.width * KEY_PRODUCTS[backward] + value * VALUE_PRODUCTS[backward]
    decode = table.phase == Phase.DECODE.value
    local = (table.window > 0) & (
        table.window <= table.seq_kv
    )  # flash masks every tile even where the window just fits
    causal = (table.causal > 0) & (grid.splits == 1)
    filled = grid.blocks / sku.sm_count
    queries = np.asarray(ELEMENT * table.batch * table.heads * table.seq_q, np.float64)
    keys = ELEMENT * table.batch * table.kv_heads * np.where(local & (table.seq_q == 1), table.window, table.seq_kv)
    helper_bytes, helpers = _helpers(table, grid, queries)
    return Work(
        products=2 * area * widths / rate,
        loads=np.asarray(ELEMENT * grid.inner * (grid.width + value) / LOAD_BYTES_PER_CLOCK, np.float64),
        elements=area / sku.number("exp_per_clock_per_sm"),
        masked=np.where(causal & ~local, np.ceil(grid.outer / grid.inner), 0.0),
        ragged=(np.where(backward > 0, table.seq_q, table.seq_kv) % grid.inner > 0) & ~decode,
        local=local,
        causal=causal,
        wave=(np.ceil(filled) - filled) * np.where(causal & ~local, _alike(grid), 1.0),
        padded=table.head_dim != grid.width,
        filled=(table.head_dim + table.head_dim_v) / (grid.width + value),
        bytes=(queries + keys) * (table.head_dim + table.head_dim_v),
        helper_bytes=helper_bytes,
        helpers=helpers,
        partials=(grid.splits - 1) * np.where(COMBINED_BY_WIDTH[grid.kernel], grid.width / 128, 1.0),
    )


def _alike(grid: Grid) -> Floats:
    """The shortest block over the longest under a causal mask: 1 where a head has one block alone."""
    return np.minimum(np.ceil(grid.outer / grid.inner) / grid.longest, 1.0)


def _helpers(table: OperatorTable, grid: Grid, queries: Floats) -> tuple[Floats, Floats]:
    """Bytes and number of the kernels around the main one.

    Backward: dO.O before, which also clears the fp32 gradient of q; that converted after; those of k and v summed over
    a group's query heads; on flash, copies of out and its gradient to [batch, seq, heads, head_dim] before everything,
    as torch makes them for operands that lie as [batch, heads, seq, head_dim]. Splits: partial fp32 outputs combined.
    """
    backward, split = BACKWARD[grid.kernel], grid.splits > 1
    copied = grid.kernel == CODES["flash_bwd"]
    grouped = backward & (table.heads > table.kv_heads)
    both = table.head_dim + table.head_dim_v
    around = queries * (2 * table.head_dim_v + 5 * table.head_dim + 4 * table.head_dim_v * copied)
    summed = ELEMENT * table.batch * table.seq_kv * (table.heads + table.kv_heads) * both
    partial = grid.splits * queries * table.head_dim_v * 4
    moved = np.where(backward, around, 0) + np.where(grouped, summed, 0) + np.where(split, partial, 0)
    return moved, 2.0 * backward + 2.0 * grouped + 2.0 * copied + split


def fit_of(table: OperatorTable, grid: Grid) -> Ints:
    """How the heads fit the kernel's width: 0 exactly, 1 padded, 2 with narrower values."""
    return np.where(table.head_dim != grid.width, 1, np.where(table.head_dim_v != grid.width, 2, 0))


def walls(w: Work, grid: Grid, constants: Floats, efficiency: Floats, sku: Sku) -> Walls:
    """constants: log, shape (rows, len(CONSTANTS)); efficiency: log share of the matrix rate, shape (rows,)."""
    c = dict(zip(CONSTANTS, np.exp(constants).T, strict=True))
    products, elements = (w.products + w.loads * c["load"]) / np.exp(efficiency), w.elements * c["exponential"]
    step = products + elements * (1 + c["mask"] * w.local + c["ragged"] * w.ragged)
    start = c["prologue"] + w.masked * c["diagonal"] + w.local * c["window"]
    longest = grid.longest + start
    even = (grid.steps + start * grid.blocks) / sku.sm_count
    unequal = np.maximum(longest - even * sku.sm_count / grid.blocks, 0)
    later = grid.blocks > sku.sm_count
    lack = c["causal_tail"] * unequal * later + c["wave"] * w.wave * longest
    busiest = np.maximum(even + lack, c["alone"] * longest)
    second = step / sku.clock_boost_hz
    compute = second * busiest
    memory = w.bytes / (c["bandwidth"] * sku.hbm_bytes_per_s)
    joined = (compute ** c["join"] + memory ** c["join"]) ** (1 / c["join"])
    joined += (
        c["exposed"] * memory * grid.blocks / grid.steps
    )  # a block's first loads and its output overlap with little
    cached = np.minimum(w.helper_bytes, HELPER_CACHE * sku.l2_bytes)  # written by the kernel before
    slower = np.where(w.padded, c["helper_padded"], 1.0)
    helpers = slower * (w.helper_bytes - cached * (1 - c["cached"])) / (c["helper_bandwidth"] * sku.hbm_bytes_per_s)
    launch = (c["floor_us"] + c["gap_us"] * w.helpers + c["combine_us"] * w.partials) * 1e-6
    special = compute * (1 - products / step)
    wave = second * np.maximum(busiest - even, 0) * joined / np.maximum(compute, memory) * (compute > memory)
    idle = products / step * (1 - grid.useful * w.filled) + (1 - products / step) * (1 - grid.useful)
    padding = np.where(compute > memory, np.maximum(compute - wave, 0) * idle, 0.0)
    return Walls(launch + joined + helpers, compute, special, memory + helpers, launch, wave, padding)


def fit(w: Work, grid: Grid, fits: Ints, measured_s: Floats, sku: Sku) -> tuple[Floats, Floats]:
    """Log constants by kernel, shape (kernels, constants), and log efficiencies, shape (kernels, widths, fit).

    Robust least squares on log time, held to the priors: a kernel with few points keeps near them.
    """
    constants = np.tile(PRIOR, (len(KERNELS), 1))
    efficiency = np.full((len(KERNELS), WIDTHS, FITS), EFFICIENCY)
    for kernel in range(len(KERNELS)):
        rows = np.flatnonzero(grid.kernel == kernel)
        if len(rows):
            part = _take(w, rows), _take(grid, rows)
            constants[kernel], efficiency[kernel] = _fit_one(*part, fits[rows], measured_s[rows], sku)
    return constants, efficiency


def _fit_one(w: Work, grid: Grid, fits: Ints, measured_s: Floats, sku: Sku) -> tuple[Floats, Floats]:
    """The constants, then a common efficiency, then what each width and fit deviates from it."""
    from scipy.optimize import least_squares

    kinds, kind = np.unique(FITS * (grid.width // 8) + fits, return_inverse=True)
    start = np.concatenate([PRIOR, [EFFICIENCY], np.zeros(len(kinds))])
    tolerance = np.concatenate([TOLERANCE, [EFFICIENCY_TOLERANCE], WIDTH_TOLERANCE * FIT_TOLERANCE[kinds % FITS]])
    known = len(CONSTANTS)

    def residuals(x: Floats) -> Floats:
        constants = np.broadcast_to(x[:known], (len(kind), known))
        predicted = walls(w, grid, constants, x[known] + x[known + 1 :][kind], sku).time_s
        return np.concatenate([np.log(predicted / measured_s), NOISE * (x - start) / tolerance])

    found = least_squares(residuals, start, loss="soft_l1", f_scale=NOISE, max_nfev=200).x
    common, deviation = found[known], found[known + 1 :]
    efficiency = np.full((WIDTHS, FITS), common)
    efficiency[kinds // FITS] = common + deviation[:, None]  # what was seen in one fit alone is taken for the others
    efficiency[kinds // FITS, kinds % FITS] = common + deviation
    return found[:known], efficiency


def cross_fitted(w: Work, grid: Grid, fits: Ints, measured_s: Floats, sku: Sku) -> Walls:
    """Walls of measured rows by constants that were fitted without them: what physics says of a row that it never saw."""
    constants = np.empty((len(measured_s), len(CONSTANTS)))
    efficiency = np.empty(len(measured_s))
    fold = np.random.default_rng(FOLDS).permutation(len(measured_s)) % FOLDS
    for one in range(FOLDS):
        rest, apart = np.flatnonzero(fold != one), np.flatnonzero(fold == one)
        found, rates = fit(_take(w, rest), _take(grid, rest), fits[rest], measured_s[rest], sku)
        constants[apart] = found[grid.kernel[apart]]
        efficiency[apart] = rates[grid.kernel[apart], grid.width[apart] // 8, fits[apart]]
    return walls(w, grid, constants, efficiency, sku)


def _take(of: Any, rows: Ints) -> Any:
    return type(of)(*(getattr(of, name)[rows] for name in type(of).__struct_fields__))
