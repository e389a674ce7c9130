"""Norms, softmax and reductions by rows and width: fused kernels, their backward, and the pieces of eager code."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from tilewise.calibration.benchmarks.traffic import COLUMNS, Kernel, Sizes, calls, elementwise, plan, sustained, tokens
from tilewise.calibration.protocol import Call, Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

__all__ = ["COLUMNS", "NAME", "cases", "prepare"]

NAME = "norms"
ATEN = torch.ops.aten
EPSILON = 1e-5
FULL = "full:bf16"


def narrow(rng: random.Random) -> Sizes:
    """Many short rows: norms over head_dim, softmax over experts."""
    return Sizes(
        rng.choice((512, 4096, 16384, 32768, 65536, 131072)), rng.choice((8, 16, 32, 60, 64, 80, 96, 128, 192, 256))
    )


def scores(rng: random.Random) -> Sizes:
    """Attention scores of an unfused attention, and everything in between."""
    return rng.choice((tokens, narrow))(rng)


def layer_norm_backward(pool: Pool, s: Sizes) -> Call:
    x, grad = (pool.random((s.rows, s.cols), torch.bfloat16) for _ in "xg")
    w, b = (pool.random((s.cols,), torch.bfloat16) for _ in "wb")
    _, mean, rstd = torch.native_layer_norm(x, (s.cols,), w, b, EPSILON)
    return lambda: ATEN.native_layer_norm_backward(grad, x, (s.cols,), mean, rstd, w, b, (True, True, True))


def rms_norm_backward(pool: Pool, s: Sizes) -> Call:
    x, grad = (pool.random((s.rows, s.cols), torch.bfloat16) for _ in "xg")
    w = pool.random((s.cols,), torch.bfloat16)
    _, rstd = ATEN._fused_rms_norm(x, (s.cols,), w, EPSILON)
    return lambda: ATEN._fused_rms_norm_backward(grad, x, (s.cols,), rstd, w, (True, True))


def softmax_backward(pool: Pool, s: Sizes) -> Call:
    x, grad = (pool.random((s.rows, s.cols), torch.bfloat16) for _ in "xg")
    y = torch.softmax(x, -1)
    return lambda: ATEN._softmax_backward_data(grad, y, -1, torch.bfloat16)


def eager_rms_norm(x: Tensor, w: Tensor) -> Tensor:
    """As the Llama family writes it: seven kernels."""
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).bfloat16()


def rows_in(
    op: str, variant: str, reads: int, writes: int, build: Callable[[Pool, Sizes], Call], points: int = 24
) -> Kernel:
    """A bf16 kernel that reads and writes whole tensors `reads` and `writes` times."""
    return Kernel(
        op=op,
        variant=variant,
        precision="bf16",
        read=lambda s: 2 * reads * s.rows * s.cols,
        written=lambda s: 2 * writes * s.rows * s.cols,
        build=build,
        draw=tokens,
        points=points,
    )


def reduction(variant: str, precision: str, dim: int, function: Callable[..., Tensor], points: int = 14) -> Kernel:
    writes = f"{'row' if dim == -1 else 'col'}:{precision}"
    return elementwise("reduce", variant, f"full:{precision}", writes, partial(function, dim=dim), points=points)


def eager(pool: Pool, s: Sizes) -> Call:
    return partial(
        eager_rms_norm, pool.random((s.rows, s.cols), torch.bfloat16), pool.random((s.cols,), torch.bfloat16)
    )


def softmax(precision: str, points: int) -> Kernel:
    tensor = f"full:{precision}"
    return elementwise("softmax", "rows", tensor, tensor, partial(torch.softmax, dim=-1), scores, points)


KERNELS = [
    elementwise(
        "layernorm",
        "fused",
        f"{FULL} col:bf16 col:bf16",
        FULL,
        lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        tokens,
        40,
    ),
    elementwise("rmsnorm", "fused", f"{FULL} col:bf16", FULL, lambda x, w: F.rms_norm(x, w.shape, w), tokens, 40),
    elementwise(
        "rmsnorm", "fused_narrow", f"{FULL} col:bf16", FULL, lambda x, w: F.rms_norm(x, w.shape, w), narrow, 12
    ),
    # fp32 copy and power, both written and read: bytes as the seven kernels move them
    rows_in("rmsnorm", "eager", 11, 8, eager, 20),
    rows_in("layernorm_backward", "fused", 2, 1, layer_norm_backward, 32),
    rows_in("rmsnorm_backward", "fused", 2, 1, rms_norm_backward, 32),
    softmax("bf16", 36),
    softmax("fp32", 24),
    rows_in("softmax_backward", "rows", 2, 1, softmax_backward),
    reduction("mean_row", "fp32", -1, torch.mean, 24),
    reduction("sum_row", "fp32", -1, torch.sum),
    reduction("sum_row", "bf16", -1, torch.sum),
    reduction("sum_col", "bf16", 0, torch.sum, 24),
    reduction("sum_col", "fp32", 0, torch.sum),
    reduction("amax_row", "bf16", -1, torch.amax, 10),
]


def cases(target: Target, level: Level) -> list[Case]:
    steady = sustained(NAME, KERNELS[0], Sizes(16384, 8192), target, level)
    return [*steady, *plan(NAME, KERNELS, target, level)]


def prepare(case: Case, pool: Pool) -> list[Call]:
    return calls(KERNELS, case, pool)
