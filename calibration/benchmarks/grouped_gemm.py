"""Mixture of experts: one GEMM an expert in one kernel, torch._grouped_mm in bf16, and its two gradients.

kind as in gemm.csv: fwd x[m,k] w[e,n,k]^T, dgrad dy[m,n] w[e,n,k], wgrad dy[m,n]^T x[m,k]; m rows over all experts.
"""

from __future__ import annotations

import math
import random
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tilewise.calibration.order import interleave
from tilewise.calibration.protocol import Call, Case, Level, Target
from tilewise.hwdb.record import Record

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

NAME = "grouped_gemm"
# skew: exponent of the power law of expert popularity, in per cent (0: even); hit, rows_max: experts with rows, and the
# rows of the fullest; tiles_64, tiles_128: row tiles of that height over all experts
COLUMNS = ("kind", "groups", "m", "n", "k", "skew", "hit", "rows_max", "tiles_64", "tiles_128")
KINDS = {"fwd": 0.6, "dgrad": 0.2, "wgrad": 0.2}

# experts, hidden, expert ffn of published models; the up projection of a gated MLP is one GEMM of 2 x ffn
MODELS = (
    (8, 4096, 14336), (8, 6144, 16384), (16, 6144, 10752), (16, 4096, 6400), (16, 5120, 8192), (32, 2880, 2880),
    (128, 2880, 2880), (40, 1536, 512), (60, 2048, 1408), (64, 2048, 1024), (64, 2048, 1408), (64, 3584, 2560),
    (128, 2048, 768), (128, 4096, 1536), (128, 5120, 8192), (160, 5120, 1536), (256, 7168, 2048), (256, 4096, 1536),
)  # fmt: skip
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
SKEWS = (0, 0, 0, 50, 80, 120)
POINTS, FLOPS_MAX, BYTES_MAX = 260, 1.6e12, 1.6e10


class Shape(Record):
    kind: str
    groups: int
    m: int
    n: int
    k: int
    skew: int

    @property
    def sizes(self) -> list[int]:
        """Rows of every expert: popularity (rank)^-skew, experts in a shuffled order, the sum exactly m."""
        weights = [(rank + 1) ** (-self.skew / 100) for rank in range(self.groups)]
        random.Random(f"{self.groups} {self.skew}").shuffle(weights)
        ends = [round(self.m * total / sum(weights)) for total in accumulate(weights)]
        return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """bf16 operands and result; weights of the experts that were hit (wgrad writes all of them)."""
        experts = self.groups if self.kind == "wgrad" else sum(size > 0 for size in self.sizes)
        return 2.0 * (experts * self.n * self.k + self.m * (self.n + self.k))


def draw(rng: random.Random, kind: str) -> Shape:
    experts, hidden, ffn = rng.choice(MODELS)
    groups = max(4, experts // rng.choice((1, 1, 2, 4, 8)))  # expert parallelism
    ffn = ffn // rng.choice((1, 1, 1, 2)) if ffn % 16 == 0 else ffn
    n, k = rng.choice(((2 * ffn, hidden), (hidden, ffn), (ffn, hidden)))
    return Shape(kind, groups, groups * rng.choice(ROWS), n, k, rng.choice(SKEWS))


def wanted(shape: Shape, level: Level) -> bool:
    flops, size = (2e9, 2e7) if level is Level.TINY else (FLOPS_MAX, BYTES_MAX)
    return shape.flops < flops and 2.0 * shape.groups * shape.n * shape.k < size and shape.bytes < size


def case(shape: Shape) -> Case:
    sizes = shape.sizes
    tiles = [sum(math.ceil(size / height) for size in sizes) for height in (64, 128)]
    key: tuple[int | str, ...] = (shape.kind, shape.groups, shape.m, shape.n, shape.k, shape.skew)
    key += (sum(size > 0 for size in sizes), max(sizes), *tiles)
    return Case(
        family=NAME,
        key=dict(zip(COLUMNS, key, strict=True)),
        estimate_s=1e-5 + max(shape.flops / 4.5e14, shape.bytes / 2.5e12),
        bytes=shape.bytes,
        flops=shape.flops,
        peak="bf16",
    )


def cases(target: Target, level: Level) -> list[Case]:
    groups = []
    for kind, share in KINDS.items():
        rng = random.Random(f"{NAME} {kind}")
        points = 2 if level is Level.TINY else round(POINTS * share)
        found: dict[Shape, None] = {}
        while len(found) < points:
            shape = draw(rng, kind)
            if wanted(shape, level):
                found.setdefault(shape)
        groups.append((share, [case(shape) for shape in found]))
    return interleave(groups)


def prepare(case: Case, pool: Pool) -> list[Call]:
    names = ("groups", "m", "n", "k", "skew")
    shape = Shape(str(case.key["kind"]), *(int(case.key[name]) for name in names))
    ends = torch.tensor(list(accumulate(shape.sizes)), dtype=torch.int32, device=pool.device)
    return [call(shape, ends, pool) for _ in range(case.sets)]


def call(shape: Shape, ends: Tensor, pool: Pool) -> Call:
    m, n, k = shape.m, shape.n, shape.k
    if shape.kind == "fwd":
        x, w = pool.random((m, k), torch.bfloat16), weights(shape, pool).transpose(-2, -1)
    elif shape.kind == "dgrad":
        x, w = pool.random((m, n), torch.bfloat16), weights(shape, pool)
    else:
        x, w = pool.random((m, n), torch.bfloat16).t(), pool.random((m, k), torch.bfloat16)
    return partial(torch._grouped_mm, x, w, offs=ends)


def weights(shape: Shape, pool: Pool) -> Tensor:
    """[groups, n, k]; all experts of the largest models exceed the pool and are allocated."""
    sizes = (shape.groups, shape.n, shape.k)
    if 2 * math.prod(sizes) <= pool.size_bytes:
        return pool.random(sizes, torch.bfloat16)
    return torch.empty(sizes, dtype=torch.bfloat16, device=pool.device).normal_()
