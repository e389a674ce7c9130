"""Fused AdamW over few and many tensors: rows tensors of cols elements each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilewise.calibration.benchmarks.traffic import COLUMNS, DTYPES, Kernel, Sizes, calls, point
from tilewise.calibration.order import interleave, shuffled
from tilewise.calibration.protocol import Call, Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

__all__ = ["COLUMNS", "NAME", "cases", "prepare"]

NAME = "optimizer"
# tensors x elements: from one layer's norm to a rank's share of a large model; a transformer layer has 9 to 12 tensors
SIZES = (
    *((1, round(10**power)) for power in (5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5)),
    *((9, round(10**power)) for power in (4, 5, 6, 6.5, 7, 7.5)),
    *((48, round(10**power)) for power in (3, 4, 5, 6, 7)),
    *((290, round(10**power)) for power in (3, 4, 5, 6)),
)  # fmt: skip
BYTES_MAX = 6e9


def adamw(pool: Pool, s: Sizes, precision: str) -> Call:
    """torch.optim.AdamW(fused=True).step() without its Python: the step counts, then the parameters."""
    dtype = DTYPES[precision]
    grads = [pool.random((s.cols,), dtype) for _ in range(s.rows)]
    params, means, squares = ([pool.output((s.cols,), dtype) for _ in range(s.rows)] for _ in range(3))
    for tensor in (*params, *means, *squares):
        tensor.zero_()
    steps = [torch.zeros((), device=pool.device) for _ in range(s.rows)]

    def step() -> None:
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            params, grads, means, squares, [], steps, lr=1e-4, beta1=0.9, beta2=0.95,
            weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    return step


def kernel(precision: str) -> Kernel:
    size = DTYPES[precision].itemsize
    return Kernel(
        op="adamw",
        variant="fused",
        precision=precision,
        read=lambda s: 4 * size * s.rows * s.cols,
        written=lambda s: 3 * size * s.rows * s.cols,
        build=lambda pool, s: adamw(pool, s, precision),
        draw=lambda rng: Sizes(1, 1),
    )


KERNELS = [kernel("bf16"), kernel("fp32")]


def cases(target: Target, level: Level) -> list[Case]:
    groups = []
    for each in KERNELS:
        sizes = [Sizes(rows, cols, 0, rows) for rows, cols in shuffled(SIZES, NAME)]
        limit = 1e6 if level is Level.TINY else BYTES_MAX
        wanted = [s for s in sizes if each.bytes(s) < limit]
        # many tensors rotate few sets: their number, not the cache, is what they are for
        groups.append((1.0, [point(NAME, each, s, "reused" if s.rows < 48 else "warm", target) for s in wanted]))
    return interleave(groups)


def prepare(case: Case, pool: Pool) -> list[Call]:
    return calls(KERNELS, case, pool)
