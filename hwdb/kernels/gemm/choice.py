"""Which kernel the vendor's library will choose for a GEMM: learned from its heuristic's own answers.

A calibration records, for up to a million shapes, the configuration that the library's heuristic returns (tile, split-K,
algorithm). The choice is a function of the shape alone but of no simple form, so small nets classify it, one for each
family of formats, layout, alignment and range of m, from what the common tiles would waste on the shape. Where they err,
the two configurations are near ties.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels.learning import mlp
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Columns, Record
from tilewise.hwdb.table import Ints, Layout

# Sizes and tile shapes against which a shape is held; (along n, along m), those that cuBLASLt chooses most on Hopper.
STEPS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 256, 320, 384)
TILES = (
    (64, 8), (192, 192), (64, 16), (320, 128), (128, 256), (256, 128), (64, 32), (8, 64), (64, 64), (160, 256),
    (64, 24), (192, 208), (256, 160), (192, 128), (256, 152), (128, 8), (32, 64), (128, 128), (64, 40), (168, 128),
    (144, 128), (96, 64), (64, 48), (112, 128), (128, 16), (192, 8), (64, 56), (80, 128), (128, 64), (192, 176),
    (96, 128), (256, 8), (80, 64), (48, 64), (16, 64), (256, 136), (256, 144), (128, 32), (64, 72), (24, 64),
    (192, 16), (64, 80), (176, 128), (144, 256), (128, 192), (64, 128), (128, 80), (192, 160),
)  # fmt: skip
WASTE_MAX = 64.0
BLOCK = 1024  # rows at a time: what lies between stays in L2
SIZES = np.array(sorted({*STEPS, *(size for tile in TILES for size in tile)}), np.float32)[:, None]
STEP = np.searchsorted(SIZES[:, 0], STEPS)  # where each of them stands in SIZES
TILE_N, TILE_M = np.searchsorted(SIZES[:, 0], np.array(TILES).T)
FLAGS = np.array([Precision.FP16, Precision.TF32, Precision.FP8_ROW])[:, None]
RARE, RARE_COUNT = 4e-4, 5  # configurations chosen less often than this are not classes of their own
SPLIT_STEPS = 20.5  # a split keeps at least 21 steps of 128 bytes along k (read off cuBLASLt 13.1's answers)


class Problem(Columns):
    """GEMMs as the choice sees them; arrays of shape (rows,). ld_bytes: alignment of the worst leading dimension."""

    m: NDArray[np.float32]
    n: NDArray[np.float32]
    k: NDArray[np.float32]
    groups: NDArray[np.float32]
    layout: Ints
    precision: Ints
    element: NDArray[np.float32]
    alignment: NDArray[np.float32]


ELEMENT = np.array([FORMATS[p].bytes for p in Precision], np.float32)
OUTPUT = np.array([4 if p in (Precision.FP32, Precision.TF32, Precision.INT8) else 2 for p in Precision], np.float32)


def problem(m: Any, n: Any, k: Any, groups: Any, layout: Ints, precision: Ints) -> Problem:
    """Rows of y[m,n] = x[m,k] w[n,k]^T in the layouts of table.Layout."""
    m32, n32, k32 = (np.asarray(size, np.float32) for size in (m, n, k))
    element = ELEMENT[precision]
    lead_x = np.where(layout == Layout.WEIGHT_GRADIENT.value, m32, k32)
    lead_w = np.where(layout == Layout.FORWARD.value, k32, n32)
    whole = np.array([lead_x * element, lead_w * element, n32 * OUTPUT[precision]]).astype(np.int64)
    power_of_two = np.minimum.reduce(whole & -whole)  # the largest that divides all of these bytes
    worst = np.minimum(power_of_two, 256).astype(np.float32)
    return Problem(m32, n32, k32, np.asarray(groups, np.float32), layout, precision, element, worst)


def features(p: Problem, sms: int) -> NDArray[np.float32]:
    """Shape (rows, inputs): sizes, what whole steps waste along m and n, and what whole waves of whole tiles waste."""
    columns = np.empty((5 + len(FLAGS) + 2 * len(STEPS) + len(TILES), len(p.m)), np.float32)
    for first in range(0, len(p.m), BLOCK):
        rows = slice(first, first + BLOCK)
        _fill(columns[:, rows], p[rows] if len(p.m) > BLOCK else p, sms)
    return columns.T  # column by column: what reads it multiplies by a matrix and minds no order


def _fill(columns: NDArray[np.float32], p: Problem, sms: int) -> None:
    one_m, one_n = 1 / p.m, 1 / p.n
    over_m, over_n = np.ceil(p.m / SIZES), np.ceil(p.n / SIZES)  # a product with 1/size would miss whole tiles
    sizes = SIZES[STEP]
    columns[5 + len(FLAGS) : -len(TILES) : 2] = np.minimum(over_m[STEP] * one_m * sizes, 8)
    columns[6 + len(FLAGS) : -len(TILES) : 2] = over_n[STEP] * (one_n * sizes)
    waves = np.ceil(over_n[TILE_N] * over_m[TILE_M] * (p.groups / np.float32(sms)))
    waste = waves * (one_m * one_n / p.groups) * (np.float32(sms) * SIZES[TILE_N] * SIZES[TILE_M])
    np.log2(np.array([p.m, p.n, p.k, p.alignment, p.groups]), out=columns[:5])
    columns[5 : 5 + len(FLAGS)] = p.precision == FLAGS
    np.log2(np.minimum(waste, WASTE_MAX), out=columns[-len(TILES) :])


class Choice(Record):
    """Configurations by row. split: pieces along k; algorithm: the library's code (0: unknown)."""

    index: Ints
    tile_m: NDArray[np.float32]
    tile_n: NDArray[np.float32]
    split: NDArray[np.float32]
    algorithm: Ints


class ChoiceModel(Record):
    """nets by kind of problem (kind_of); classes: rows (kind, algorithm, tile_n, tile_m, split flag)."""

    nets: Mapping[int, mlp.Mlp]
    classes: NDArray[np.int64]
    splits: mlp.Mlp  # log2 of the pieces along k, where a configuration splits

    @cached_property
    def _known(self) -> Ints:
        """Each kind itself, or the nearest that the library was asked about."""
        have = np.array(sorted(self.nets))
        known: Ints = have[np.abs(np.arange(KINDS)[:, None] - have).argmin(1)]
        return known

    @cached_property
    def _first(self) -> list[int]:
        """Where the classes of each kind begin, which stand together."""
        found: list[int] = np.searchsorted(self.classes[:, 0], np.arange(KINDS)).tolist()
        return found

    def choose(self, p: Problem, sms: int) -> Choice:
        kinds = self._known[kind_of(p)]
        order = kinds.astype(np.int16).argsort(kind="stable")
        inputs, kinds = features(p[order], sms), kinds[order]
        index = np.zeros(len(order), np.int64)
        ends = [*(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(kinds)]
        for first, last in pairwise([0, *ends] if len(kinds) else []):
            kind = int(kinds[first])
            index[order[first:last]] = self._first[kind] + self.nets[kind](inputs[first:last]).argmax(1)
        _, algorithm, tile_n, tile_m, split = self.classes[index].T
        width, height = tile_n.astype(np.float32), tile_m.astype(np.float32)
        pieces = np.ones(len(index), np.float32)
        rows = np.flatnonzero(split)
        if len(rows):
            inputs = split_features(p[rows], width[rows], height[rows], algorithm[rows], sms)
            pieces[rows] = np.maximum(np.round(2 ** self.splits(inputs)[:, 0]), 2)
        return Choice(index, height, width, pieces, algorithm)

    def name(self, at: int) -> str:
        """What a class is, for a reader: tile as features x tokens (along n, along m)."""
        _, algorithm, tile_n, tile_m, split = self.classes[at].tolist()
        family = {66: "nvjet", 23: "sm80", 24: "sm75", 13: "gemv", 11: "gemv"}.get(algorithm, f"cublas{algorithm}")
        return f"{family} {tile_n}x{tile_m}{' split-K' if split else ''}"

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"choice.classes": self.classes, **self.splits.to_arrays("split")}
        for kind, net in self.nets.items():
            arrays |= net.to_arrays(f"choice{kind}")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ChoiceModel:
        return cls(
            mlp.Nets(arrays, "choice"),
            np.asarray(arrays["choice.classes"], np.int64),
            mlp.Mlp.from_arrays(arrays, "split"),
        )


# Precisions whose kernels come from one family; the others' choices are not asked for.
POOLS: tuple[tuple[Precision, ...], ...] = (
    (Precision.BF16, Precision.FP16),
    (Precision.FP8, Precision.FP8_ROW),
    (Precision.TF32, Precision.FP32),
)
POOL = np.array([next((i for i, pool in enumerate(POOLS) if p in pool), 0) for p in Precision])

TMA_BYTES = 16  # alignment of leading dimensions from which on tensors can be fetched by TMA
M_EDGES = np.array([16, 64, 256, 1024, 4096], np.float32)  # from tokens of a decode to those of a training step
KINDS = len(POOLS) * len(Layout) * 2 * (len(M_EDGES) + 1)


def kind_of(p: Problem) -> Ints:
    """Which net answers: family of formats, layout, whether operands are aligned for TMA, range of m."""
    kinds: Ints = (POOL[p.precision] * len(Layout) + p.layout) * 2 + (p.alignment >= TMA_BYTES)
    return kinds * (len(M_EDGES) + 1) + M_EDGES.searchsorted(p.m)


def split_features(
    p: Problem, tile_n: NDArray[np.float32], tile_m: NDArray[np.float32], algorithm: Ints, sms: int
) -> NDArray[np.float32]:
    """What decides into how many pieces a configuration splits k: how far its tiles fill the SMs, and how long k is."""
    tiles = np.ceil(p.n / tile_n) * np.ceil(p.m / tile_m) * p.groups
    steps = p.k * p.element / 128
    fill = np.float32(sms) / tiles
    columns = [
        np.log2(fill), np.log2(steps), np.log2(tile_n), np.log2(tile_m), np.clip(fill - np.floor(fill), 0, 1),
        np.log2(p.m), np.log2(p.n), np.log2(p.alignment), np.log2(np.floor(np.maximum(fill, 1))),
        np.log2(np.floor(np.maximum(2 * fill, 1))), np.log2(np.maximum(np.floor(steps / SPLIT_STEPS), 1)),
    ]  # fmt: skip
    columns += [(algorithm == code).astype(np.float32) for code in (66, 23, 24, 21, 55, 20)]
    return np.ascontiguousarray(np.array(columns, np.float32).T)


def fit(harvest: Mapping[str, NDArray[Any]], sms: int, epochs: int = 100) -> ChoiceModel:
    """Learn from columns m, n, k, layout, precision, algorithm, tile_n, tile_m, split_k of the library's answers."""
    p = asked(harvest)
    inputs, kinds = features(p, sms), kind_of(p)
    flag = (harvest["split_k"] > 1).astype(np.int64)
    configs = np.stack([harvest["algorithm"], harvest["tile_n"], harvest["tile_m"], flag], 1)
    nets: dict[int, mlp.Mlp] = {}
    classes: list[NDArray[np.int64]] = []
    for kind in np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        found, which, times = np.unique(configs[rows], axis=0, return_inverse=True, return_counts=True)
        common = times >= max(RARE_COUNT, RARE * len(rows))
        rename, use = np.cumsum(common) - 1, common[which]
        if not use.any():
            continue
        plan = mlp.Training(hidden=(48, 32), epochs=epochs, batch=256)
        nets[int(kind)] = mlp.train(inputs[rows[use]], rename[which[use]], int(common.sum()), mlp.cross_entropy, plan)
        classes.append(np.column_stack([np.full(common.sum(), kind), found[common]]))
    return ChoiceModel(nets, np.concatenate(classes), _fit_splits(p, harvest, sms))


def _fit_splits(p: Problem, harvest: Mapping[str, NDArray[Any]], sms: int) -> mlp.Mlp:
    """Stream-K kernels report absurd split counts (65535); they are left out."""
    rows = np.flatnonzero((harvest["split_k"] > 1) & (harvest["split_k"] < 1000))
    tile_n, tile_m = (harvest[name][rows].astype(np.float32) for name in ("tile_n", "tile_m"))
    inputs = split_features(p[rows], tile_n, tile_m, harvest["algorithm"][rows], sms)
    plan = mlp.Training(hidden=(48, 32), epochs=20, batch=512)
    return mlp.train(inputs, np.log2(harvest["split_k"][rows])[:, None], 1, mlp.huber(0.1), plan)


def asked(harvest: Mapping[str, NDArray[Any]], every: int = 1) -> Problem:
    """The problems that the library was asked about, or one in `every`."""
    m, n, k, layout, precision = (harvest[name][::every] for name in ("m", "n", "k", "layout", "precision"))
    return problem(m, n, k, np.ones(len(m)), layout, precision)
