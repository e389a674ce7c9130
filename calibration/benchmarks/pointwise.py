"""Elementwise, layout-changing and indexing kernels, as eager transformer code launches them one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import Tensor

from tilewise.calibration.benchmarks.traffic import (
    COLUMNS,
    DTYPES,
    HIDDEN,
    ROWS,
    Kernel,
    Sizes,
    calls,
    elementwise,
    heads,
    plan,
    sustained,
    traffic,
    wide,
)
from tilewise.calibration.protocol import Call, Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

__all__ = ["COLUMNS", "NAME", "cases", "prepare"]

NAME = "pointwise"
ATEN = torch.ops.aten
TWO = "full:bf16 full:bf16"

ELEMENTWISE = [
    elementwise("add", "residual", TWO, "full:bf16", torch.add, points=28),
    elementwise("add", "scalar", "full:fp32", "full:fp32", lambda x: x + 1e-5, points=8),
    elementwise("add", "plain", "full:fp32 full:fp32", "full:fp32", torch.add),
    elementwise("add", "col", "full:bf16 col:bf16", "full:bf16", torch.add),  # a bias
    elementwise("mul", "plain", TWO, "full:bf16", torch.mul, wide, points=24),
    elementwise("mul", "plain", "full:fp32 full:fp32", "full:fp32", torch.mul),
    elementwise("mul", "scalar", "full:fp32", "full:fp32", lambda x: x * 0.5),
    elementwise("mul", "scalar", "full:bf16", "full:bf16", lambda x: x * 0.5, points=10),
    elementwise("mul", "row", "full:fp32 row:fp32", "full:fp32", torch.mul),  # x * rsqrt(variance)
    elementwise("mul", "row", "full:bf16 row:bf16", "full:bf16", torch.mul),  # expert outputs by router weight
    elementwise("mul", "col", "full:bf16 col:bf16", "full:bf16", torch.mul),  # norm weight
    elementwise("mul", "col", "full:fp32 col:fp32", "full:fp32", torch.mul, points=8),
    elementwise("cast", "bf16_fp32", "full:bf16", "full:fp32", lambda x: x.float(), points=24),
    elementwise("cast", "fp32_bf16", "full:fp32", "full:bf16", lambda x: x.bfloat16(), points=24),
    elementwise("copy", "clone", "full:fp32", "full:fp32", torch.clone, points=8),
    elementwise("pointwise", "neg", "full:bf16", "full:bf16", torch.neg, points=8),
    elementwise("pointwise", "pow", "full:fp32", "full:fp32", lambda x: x.pow(2)),
    elementwise("pointwise", "rsqrt", "full:fp32", "full:fp32", torch.rsqrt, points=8),
    elementwise("pointwise", "exp", "full:fp32", "full:fp32", torch.exp, points=8),
    elementwise("pointwise", "tanh", "full:bf16", "full:bf16", torch.tanh, points=10),  # softcapping
    elementwise("pointwise", "sigmoid", "full:fp32", "full:fp32", torch.sigmoid, points=8),  # routers, gates
    elementwise("activation", "silu", "full:bf16", "full:bf16", F.silu, wide, points=20),
    elementwise("activation", "gelu", "full:bf16", "full:bf16", F.gelu, wide, points=24),
    elementwise("activation", "gelu_tanh", "full:bf16", "full:bf16", partial(F.gelu, approximate="tanh"), wide),
    elementwise("activation", "relu", "full:bf16", "full:bf16", F.relu, wide, points=8),
    elementwise("activation_backward", "silu", TWO, "full:bf16", ATEN.silu_backward, wide),
    elementwise("activation_backward", "gelu", TWO, "full:bf16", ATEN.gelu_backward, wide),
    elementwise(
        "activation_backward", "gelu_tanh", TWO, "full:bf16", partial(ATEN.gelu_backward, approximate="tanh"), wide, 10
    ),
    replace(
        elementwise("gated_activation", "silu_mul", TWO, TWO, lambda g, u: F.silu(g) * u, wide, points=24),
        read=partial(traffic, "full:bf16 full:bf16 full:bf16"),  # two kernels: silu(g) is written and read again
    ),
    elementwise("quantize", "fp8", "full:bf16", "full:fp8", lambda x: x.to(torch.float8_e4m3fn)),
]


def strided(
    op: str,
    variant: str,
    read: Callable[[Sizes], float],
    written: Callable[[Sizes], float],
    build: Callable[[Pool, Sizes], Call],
    points: int = 14,
    precision: str = "bf16",
    draw: Callable[[random.Random], Sizes] = heads,
) -> Kernel:
    """A kernel over heads; `read` and `written` count elements of the precision."""
    size = DTYPES[precision].itemsize
    return Kernel(
        op=op,
        variant=variant,
        precision=precision,
        read=lambda s: size * read(s),
        written=lambda s: size * written(s),
        build=build,
        draw=draw,
        points=points,
    )


def by_heads(pool: Pool, s: Sizes, width: int = 0) -> Tensor:
    """[1, heads, rows, width] as attention sees a projection's output: tokens outermost in memory."""
    return pool.random((1, s.rows, s.cols // s.inner, width or s.inner), torch.bfloat16).transpose(1, 2)


def full(s: Sizes) -> float:
    return s.rows * s.cols


def half(s: Sizes) -> float:
    return s.rows * s.cols / 2


def repeated(s: Sizes) -> float:
    return s.rows * s.cols * s.count


def contiguous(pool: Pool, s: Sizes) -> Call:
    return by_heads(pool, s).contiguous


def transpose_2d(pool: Pool, s: Sizes) -> Call:
    return pool.random((s.rows, s.cols), torch.bfloat16).t().contiguous


def repeat_kv(pool: Pool, s: Sizes) -> Call:
    x = pool.random((1, s.cols // s.inner, s.rows, s.inner), torch.bfloat16)
    return lambda: x[:, :, None].expand(-1, -1, s.count, -1, -1).reshape(1, -1, s.rows, s.inner)


def repeat_kv_backward(pool: Pool, s: Sizes) -> Call:
    x = pool.random((1, s.cols // s.inner, s.count, s.rows, s.inner), torch.bfloat16)
    return lambda: x.sum(2)


def slice_backward(pool: Pool, s: Sizes) -> Call:
    """Half a gradient into its place in a full one (the other kernel of slice_backward is a fill)."""
    grad = by_heads(pool, s, s.inner // 2)
    target = pool.output((1, s.cols // s.inner, s.rows, s.inner), torch.bfloat16)[..., : s.inner // 2]
    return lambda: target.copy_(grad)


def rope_mul(pool: Pool, s: Sizes) -> Call:
    return partial(torch.mul, by_heads(pool, s), pool.random((1, 1, s.rows, s.inner), torch.bfloat16))


def rope_neg(pool: Pool, s: Sizes) -> Call:
    return partial(torch.neg, by_heads(pool, s)[..., s.inner // 2 :])


def rope_cat(pool: Pool, s: Sizes) -> Call:
    return partial(torch.cat, (by_heads(pool, s, s.inner // 2), by_heads(pool, s)[..., : s.inner // 2]), -1)


def rope_add(pool: Pool, s: Sizes) -> Call:
    return partial(torch.add, by_heads(pool, s), pool.random((1, s.cols // s.inner, s.rows, s.inner), torch.bfloat16))


def rope(pool: Pool, s: Sizes) -> Call:
    """All five kernels of x * cos + rotate_half(x) * sin."""
    x = by_heads(pool, s)
    cos, sin = (pool.random((1, 1, s.rows, s.inner), torch.bfloat16) for _ in "cs")
    h = s.inner // 2
    return lambda: (x * cos) + (torch.cat((-x[..., h:], x[..., :h]), -1) * sin)


def expand(pool: Pool, s: Sizes) -> Call:
    """The backward of a mean: one number a row, spread over the row and scaled."""
    x = pool.random((s.rows, 1), torch.float32)
    return lambda: x.expand(-1, s.cols) * 0.5


def masked_fill(pool: Pool, s: Sizes) -> Call:
    mask = pool.random((s.rows, s.cols), torch.bfloat16) > 0
    x = pool.random((s.rows, s.cols), torch.bfloat16)
    return lambda: x.masked_fill(mask, -1e4)


def conv1d(pool: Pool, s: Sizes) -> Call:
    """Depthwise causal convolution of width 4, as Mamba runs it: channels = cols, time = rows."""
    x, w = pool.random((1, s.cols, s.rows), torch.bfloat16), pool.random((s.cols, 1, 4), torch.bfloat16)
    return lambda: F.conv1d(x, w, padding=3, groups=s.cols)


def hidden(rng: random.Random) -> Sizes:
    return Sizes(rng.choice(ROWS[4:]), rng.choice(HIDDEN))


STRIDED = [
    strided("transpose", "bshd_bhsd", full, full, contiguous, 20),
    strided("transpose", "matrix", full, full, transpose_2d, 12, draw=hidden),
    strided("transpose", "repeat_kv", full, repeated, repeat_kv),
    strided("transpose", "slice_backward", half, half, slice_backward),
    strided("reduce", "repeat_kv_backward", repeated, full, repeat_kv_backward, 10),
    strided("rope", "mul", full, full, rope_mul, 20),
    strided("rope", "neg", half, half, rope_neg),
    strided("rope", "cat", full, full, rope_cat, 20),
    strided("rope", "add", lambda s: 2 * full(s), full, rope_add, 20),
    strided("rope", "eager", lambda s: 5.5 * full(s), lambda s: 4.5 * full(s), rope, 14),
    strided("pointwise", "expand", lambda s: s.rows, full, expand, 14, "fp32", hidden),
    strided("pointwise", "masked_fill", lambda s: 1.5 * full(s), full, masked_fill, 10, draw=hidden),
    strided("conv1d", "depthwise4", full, full, conv1d, 10, draw=hidden),
]
KERNELS = [*ELEMENTWISE, *STRIDED]


def cases(target: Target, level: Level) -> list[Case]:
    gated = next(kernel for kernel in KERNELS if kernel.op == "gated_activation")
    steady = sustained(NAME, gated, Sizes(16384, 14336), target, level)
    return [*steady, *plan(NAME, KERNELS, target, level)]


def prepare(case: Case, pool: Pool) -> list[Call]:
    return calls(KERNELS, case, pool)
