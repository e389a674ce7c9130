"""Which kernel the vendor's library will choose for a GEMM: learned from its heuristic's own answers.

A calibration records, for a hundred thousand shapes, the configuration that the library's heuristic returns (tile,
split-K, algorithm). The choice is a function of the shape alone but of no simple form, so a small net classifies it
from how well the common tiles and waves fit the shape. Where it errs, the two configurations are near ties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels import mlp
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import Floats, Ints, Layout

# Sizes and tile shapes against which a shape is held; (along n, along m), those that libraries choose most.
STEPS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 256, 320, 384)
TILES = (
    (192, 192), (320, 128), (256, 128), (128, 256), (192, 208), (256, 160), (160, 256), (256, 152), (128, 192),
    (192, 128), (64, 64), (128, 128), (128, 64), (64, 128), (64, 8), (8, 64), (128, 8), (64, 32), (256, 8), (64, 16),
    (80, 64), (96, 64), (256, 96),
)  # fmt: skip
RARE = 4e-4  # configurations chosen less often than this are not classes of their own
SPLIT_STEPS = 20.5  # a split keeps at least 21 steps of 128 bytes along k (read off cuBLASLt 13.1's answers)


@dataclass(frozen=True, slots=True)
class Problem:
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
    lead_x = np.where(layout == Layout.WEIGHT_GRADIENT, m32, k32)
    lead_w = np.where(layout == Layout.FORWARD, k32, n32)
    worst = np.full(len(m32), 256.0, np.float32)
    for size, width in ((lead_x, element), (lead_w, element), (n32, OUTPUT[precision])):
        worst = np.minimum(worst, _power_of_two(size * width))
    return Problem(m32, n32, k32, np.asarray(groups, np.float32), layout, precision, element, worst)


def _power_of_two(size_bytes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Largest power of two that divides a size in bytes, at most 256."""
    whole = size_bytes.astype(np.int64)
    power: NDArray[np.float32] = np.minimum(whole & -whole, 256).astype(np.float32)
    return power


def features(p: Problem, sms: int) -> NDArray[np.float32]:
    """Shape (rows, inputs)."""
    columns = [np.log2(p.m), np.log2(p.n), np.log2(p.k), np.log2(p.alignment), np.log2(p.groups)]
    columns += [(p.layout == layout).astype(np.float32) for layout in Layout]
    columns += [
        (p.precision == code).astype(np.float32) for code in (Precision.FP16, Precision.TF32, Precision.FP8_ROW)
    ]
    sizes = {*STEPS, *(size for tile in TILES for size in tile)}
    over_m = {size: np.ceil(p.m / np.float32(size)) for size in sizes}
    over_n = {size: np.ceil(p.n / np.float32(size)) for size in sizes}
    for step in STEPS:
        columns.append(np.minimum(over_m[step] * step / p.m, 8))
        columns.append(over_n[step] * step / p.n)
    for tile_n, tile_m in TILES:
        waves = over_n[tile_n] * over_m[tile_m] * p.groups * np.float32(1 / sms)
        columns.append(np.minimum(np.ceil(waves) / waves, 16))
        columns.append(np.log2(np.clip(waves, 1 / 16, 64)))
    return np.stack(columns, 1)


@dataclass(frozen=True, slots=True)
class Choice:
    """Configurations by row. split: pieces along k; algorithm: the library's code (0: unknown)."""

    index: Ints
    tile_m: NDArray[np.float32]
    tile_n: NDArray[np.float32]
    split: NDArray[np.float32]
    algorithm: Ints


@dataclass(frozen=True, slots=True)
class ChoiceModel:
    """nets by pool of precisions; classes: rows (pool, algorithm, tile_n, tile_m, split flag)."""

    nets: tuple[mlp.Mlp, ...]
    classes: NDArray[np.int64]

    def choose(self, p: Problem, sms: int) -> Choice:
        index = np.zeros(len(p.m), np.int64)
        pools = POOL[p.precision]
        inputs = features(p, sms)
        for pool, net in enumerate(self.nets):
            rows = np.flatnonzero(pools == pool)
            if len(rows):
                mine = np.flatnonzero(self.classes[:, 0] == pool)
                index[rows] = mine[net(inputs[rows]).argmax(1)]
        _, algorithm, tile_n, tile_m, split = self.classes[index].T
        width, height = tile_n.astype(np.float32), tile_m.astype(np.float32)
        return Choice(index, height, width, split_count(p, width, height, split, sms), algorithm)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"choice.classes": self.classes}
        for pool, net in enumerate(self.nets):
            arrays |= net.to_arrays(f"choice{pool}")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ChoiceModel:
        count = len({name.split(".")[0] for name in arrays if name.startswith("choice") and name.endswith(".w0")})
        nets = tuple(mlp.Mlp.from_arrays(arrays, f"choice{pool}") for pool in range(count))
        return cls(nets, np.asarray(arrays["choice.classes"], np.int64))


# Precisions whose kernels come from one family share a net; the others' choices are not asked for.
POOLS: tuple[tuple[Precision, ...], ...] = (
    (Precision.BF16, Precision.FP16),
    (Precision.FP8, Precision.FP8_ROW),
    (Precision.TF32, Precision.FP32),
)
POOL = np.array([next((i for i, pool in enumerate(POOLS) if p in pool), 0) for p in Precision])


def split_count(
    p: Problem, tile_n: NDArray[np.float32], tile_m: NDArray[np.float32], split: Ints, sms: int
) -> NDArray[np.float32]:
    """Pieces along k where the configuration splits: fill one wave, but keep SPLIT_STEPS steps a piece."""
    tiles = np.ceil(p.n / tile_n) * np.ceil(p.m / tile_m) * p.groups
    steps = p.k * p.element / 128
    fill = np.where(tiles <= sms, np.floor(sms / tiles), 2)
    return np.where(split > 0, np.maximum(np.minimum(fill, np.floor(steps / SPLIT_STEPS)), 2), 1).astype(np.float32)


def fit(harvest: Mapping[str, NDArray[Any]], sms: int, epochs: int = 24) -> ChoiceModel:
    """Learn from columns m, n, k, layout, precision, algorithm, tile_n, tile_m, split_k of the library's answers."""
    p = problem(
        harvest["m"], harvest["n"], harvest["k"], np.ones(len(harvest["m"])), harvest["layout"], harvest["precision"]
    )
    inputs = features(p, sms)
    pools = POOL[p.precision]
    nets: list[mlp.Mlp] = []
    classes: list[NDArray[np.int64]] = []
    for pool in range(len(POOLS)):
        rows = np.flatnonzero(pools == pool)
        if not len(rows):
            break
        flag = (harvest["split_k"][rows] > 1).astype(np.int64)
        configs = np.stack([harvest["algorithm"][rows], harvest["tile_n"][rows], harvest["tile_m"][rows], flag], 1)
        kinds, which, times = np.unique(configs, axis=0, return_inverse=True, return_counts=True)
        common = times >= max(3, RARE * len(rows))
        rename = np.cumsum(common) - 1
        use = common[which]
        plan = mlp.Training(hidden=(128, 128), epochs=epochs, batch=512)
        nets.append(mlp.train(inputs[rows][use], rename[which[use]], int(common.sum()), mlp.cross_entropy, plan))
        classes.append(np.column_stack([np.full(common.sum(), pool), kinds[common]]))
    return ChoiceModel(tuple(nets), np.concatenate(classes))


def accuracy(model: ChoiceModel, harvest: Mapping[str, NDArray[Any]], sms: int) -> Floats:
    """For each harvested row 1 where the chosen tile is the library's, else 0."""
    p = problem(
        harvest["m"], harvest["n"], harvest["k"], np.ones(len(harvest["m"])), harvest["layout"], harvest["precision"]
    )
    choice = model.choose(p, sms)
    same = (choice.tile_n == harvest["tile_n"]) & (choice.tile_m == harvest["tile_m"])
    agreed: NDArray[np.float64] = same.astype(np.float64)
    return agreed
