"""Plain memory traffic by size, from L2 to HBM: read, write, copy, add. The same buffers every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tilewise.calibration.benchmarks.traffic import COLUMNS, Kernel, Sizes, calls, point, sustained
from tilewise.calibration.order import interleave, shuffled
from tilewise.calibration.protocol import Call, Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

__all__ = ["COLUMNS", "NAME", "cases", "prepare"]

NAME = "memory"
MIB = 2**20
SIZES_MIB = (0.0625, 0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64)
LARGE_MIB = (80, 96, 112, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def stream(op: str, variant: str, reads: int, writes: int, build: Callable[[Pool, Sizes], Call]) -> Kernel:
    """A bf16 kernel over one vector of `cols` elements."""
    return Kernel(
        op=op,
        variant=variant,
        precision="bf16",
        read=lambda s: 2 * reads * s.cols,
        written=lambda s: 2 * writes * s.cols,
        build=build,
        draw=lambda rng: Sizes(1, 1),
    )


def copy(pool: Pool, s: Sizes) -> Call:
    source, target = pool.random((s.cols,), torch.bfloat16), pool.output((s.cols,), torch.bfloat16)
    return lambda: target.copy_(source)


def fill(pool: Pool, s: Sizes) -> Call:
    target = pool.output((s.cols,), torch.bfloat16)
    return lambda: target.fill_(1.0)


def add(pool: Pool, s: Sizes) -> Call:
    x, y = pool.random((s.cols,), torch.bfloat16), pool.output((s.cols,), torch.bfloat16)
    return lambda: torch.add(x, y, out=y)


def read(pool: Pool, s: Sizes) -> Call:
    x = pool.random((s.cols,), torch.bfloat16)
    return lambda: torch.sum(x)


def relu(pool: Pool, s: Sizes) -> Call:
    """A copy by a kernel; `copy` itself is the copy engine's or the driver's."""
    source, target = pool.random((s.cols,), torch.bfloat16), pool.output((s.cols,), torch.bfloat16)
    return lambda: torch.clamp_min(source, 0, out=target)


KERNELS = [
    stream("copy", "memcpy", 1, 1, copy),
    stream("fill", "plain", 0, 1, fill),
    stream("add", "in_place", 2, 1, add),
    stream("reduce", "sum", 1, 0, read),
    stream("pointwise", "clamp", 1, 1, relu),
]


def cases(target: Target, level: Level) -> list[Case]:
    mib = (0.0625, 0.25) if level is Level.TINY else (*SIZES_MIB, *LARGE_MIB)
    groups = []
    for kernel in KERNELS:
        sizes = [Sizes(1, round(size * MIB / 2)) for size in shuffled(mib, kernel.op)]
        groups.append((1.0, [point(NAME, kernel, s, "warm", target) for s in sizes]))
        cold = [s for s in sizes if 2 * s.cols <= 64 * MIB]
        groups.append((0.4, [point(NAME, kernel, s, "cold", target) for s in cold]))
    steady = [
        case
        for kernel, size in ((KERNELS[0], 2048), (KERNELS[3], 2048), (KERNELS[2], 16))
        for case in sustained(NAME, kernel, Sizes(1, size * MIB // 2), target, level)
    ]
    return [*steady, *interleave(groups)]


def prepare(case: Case, pool: Pool) -> list[Call]:
    return calls(KERNELS, case, pool)
