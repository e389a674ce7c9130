"""torch.bmm: the products of unfused and linear attention, of absorbed MLA, and random ones. kind as in gemm.csv."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from tilewise.calibration.order import interleave
from tilewise.calibration.protocol import Call, Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

NAME = "batched_gemm"
COLUMNS = ("kind", "dtype", "groups", "m", "n", "k")
TORCH = {"bf16": torch.bfloat16, "fp32": torch.float32}
FLOPS_MAX, BYTES_MAX = {"bf16": 1e12, "fp32": 5e10}, 2e9


class Shape(NamedTuple):
    kind: str
    dtype: str
    groups: int
    m: int
    n: int
    k: int

    @property
    def flops(self) -> float:
        return 2.0 * self.groups * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        element = TORCH[self.dtype].itemsize
        return float(element * self.groups * (self.m * self.k + self.n * self.k + self.m * self.n))


def attention_scores(rng: random.Random) -> Shape:
    """q k^T: [seq, head_dim] by [seq, head_dim] a head."""
    seq, heads = rng.choice((128, 256, 512, 1000, 1024, 2048, 4096)), rng.choice((8, 12, 16, 32, 64, 128))
    return Shape("fwd", "bf16", heads, seq, seq, rng.choice((64, 80, 96, 128, 192, 256)))


def attention_values(rng: random.Random) -> Shape:
    """p v: [seq, seq] by [seq, head_dim] a head."""
    _, dtype, groups, m, n, k = attention_scores(rng)
    return Shape("dgrad", dtype, groups, m, k, n)


def absorbed_mla(rng: random.Random) -> Shape:
    """Per head: tokens by the latent of 512, or back."""
    n, k = rng.choice(((512, 128), (128, 512)))
    return Shape(
        rng.choice(("fwd", "dgrad")), "bf16", rng.choice((16, 32, 64, 128)), rng.choice((1, 8, 32, 64, 256)), n, k
    )


def anything(rng: random.Random) -> Shape:
    grain = rng.choice((1, 2, 8, 8, 16, 64, 128))

    def size(low: float, high: float) -> int:
        return max(grain, round(math.exp(rng.uniform(math.log(low), math.log(high))) / grain) * grain)

    groups = round(math.exp(rng.uniform(math.log(2), math.log(512))))
    return Shape(rng.choice(("fwd", "dgrad", "wgrad")), "bf16", groups, size(1, 4096), size(32, 4096), size(32, 4096))


def rotary_table(rng: random.Random) -> Shape:
    """inv_freq by positions, in fp32, as every transformers model computes its rotary table."""
    return Shape(
        "dgrad", "fp32", rng.choice((1, 2, 4, 8)), rng.choice((32, 40, 48, 64)), rng.choice((512, 2048, 4096)), 1
    )


PLAN: tuple[tuple[int, Callable[[random.Random], Shape]], ...] = (
    (30, attention_scores),
    (24, attention_values),
    (20, absorbed_mla),
    (60, anything),
    (6, rotary_table),
)


def wanted(shape: Shape, level: Level) -> bool:
    if level is Level.TINY:
        return shape.flops < 1e9 and shape.bytes < 1e7
    return shape.flops < FLOPS_MAX[shape.dtype] and shape.bytes < BYTES_MAX


def case(shape: Shape) -> Case:
    rate = 4e14 if shape.dtype == "bf16" else 3e13
    return Case(
        family=NAME,
        key=shape._asdict(),
        estimate_s=5e-6 + max(shape.flops / rate, shape.bytes / 2.5e12),
        bytes=shape.bytes,
        flops=shape.flops,
        peak=shape.dtype,
    )


def cases(target: Target, level: Level) -> list[Case]:
    groups = []
    for points, draw in PLAN:
        rng = random.Random(f"{NAME} {draw.__name__}")
        number = 2 if level is Level.TINY else points
        found: dict[Shape, None] = {}
        for _ in range(400 * number):
            if wanted(shape := draw(rng), level):
                found.setdefault(shape)
            if len(found) == number:
                break
        groups.append((float(points), [case(shape) for shape in found]))
    return interleave(groups)


def prepare(case: Case, pool: Pool) -> list[Call]:
    sizes = (int(case.key[name]) for name in COLUMNS[2:])
    shape = Shape(str(case.key["kind"]), str(case.key["dtype"]), *sizes)
    return [call(shape, pool) for _ in range(case.sets)]


def call(shape: Shape, pool: Pool) -> Call:
    kind, dtype, groups, m, n, k = shape

    def operand(rows: int, cols: int) -> Tensor:
        return pool.random((groups, rows, cols), TORCH[dtype])

    x = operand(k, m).transpose(1, 2) if kind == "wgrad" else operand(m, k)
    w = operand(n, k).transpose(1, 2) if kind == "fwd" else operand(k, n)
    return partial(torch.bmm, x, w, out=pool.output((groups, m, n), TORCH[dtype]))
