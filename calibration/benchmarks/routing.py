"""What moves tokens: gathers and scatters of rows, and the router's choice of experts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tilewise.calibration.benchmarks.traffic import COLUMNS, HIDDEN, Kernel, Sizes, calls, distinct, indices, plan
from tilewise.calibration.protocol import Call, Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

__all__ = ["COLUMNS", "NAME", "cases", "prepare"]

NAME = "routing"
EXPERTS = (8, 16, 32, 40, 60, 64, 128, 256, 512)
TOKENS = (1, 16, 64, 256, 1000, 1024, 2048, 4096, 4096, 8192, 16384, 32768)


def rows_of(rng: random.Random) -> Sizes:
    """rows picked out of count rows of a hidden size."""
    tokens = rng.choice(TOKENS[1:])
    return Sizes(tokens * rng.choice((1, 2, 4, 6, 8)), rng.choice(HIDDEN[3:-2]), 0, tokens)


def experts_of(rng: random.Random) -> Sizes:
    """Scores of rows tokens for cols experts, count of which are chosen."""
    return Sizes(rng.choice(TOKENS), rng.choice(EXPERTS), 0, rng.choice((1, 2, 4, 6, 8)))


def assignments(rng: random.Random) -> Sizes:
    """rows (token, expert) pairs over count experts."""
    return Sizes(rng.choice(TOKENS) * rng.choice((1, 2, 4, 8)), 1, 0, rng.choice(EXPERTS))


def index_select(pool: Pool, s: Sizes) -> Call:
    x, picked = pool.random((s.count, s.cols), torch.bfloat16), indices(pool, s.rows, s.count)
    return lambda: x.index_select(0, picked)


def index(pool: Pool, s: Sizes) -> Call:
    x, picked = pool.random((s.count, s.cols), torch.bfloat16), indices(pool, s.rows, s.count)
    return lambda: x[picked]


def index_add(pool: Pool, s: Sizes) -> Call:
    x, picked = pool.random((s.rows, s.cols), torch.bfloat16), indices(pool, s.rows, s.count)
    target = pool.output((s.count, s.cols), torch.bfloat16)
    return lambda: target.index_add_(0, picked, x)


def index_put(pool: Pool, s: Sizes) -> Call:
    """A permutation written back: rows to rows."""
    x, target = pool.random((s.rows, s.cols), torch.bfloat16), pool.output((s.rows, s.cols), torch.bfloat16)
    order = torch.argsort(indices(pool, s.rows, s.rows))
    return lambda: target.index_put_((order,), x)


def take_along(pool: Pool, s: Sizes) -> Call:
    x = pool.random((s.rows, s.cols), torch.float32)
    chosen = indices(pool, s.rows * s.count, s.cols).view(s.rows, s.count)
    return lambda: x.gather(-1, chosen)


def topk(pool: Pool, s: Sizes) -> Call:
    x, chosen = pool.random((s.rows, s.cols), torch.float32), min(s.count, s.cols)
    return lambda: torch.topk(x, chosen, dim=-1)


def sort(pool: Pool, s: Sizes) -> Call:
    x = indices(pool, s.rows, s.count)
    return lambda: torch.sort(x)


def histogram(pool: Pool, s: Sizes) -> Call:
    """Tokens of every expert. Min and max are named, so nothing is asked back from the device."""
    x = indices(pool, s.rows, s.count).float()
    return lambda: torch.histc(x, bins=s.count, min=0, max=s.count - 1)


def cumsum(pool: Pool, s: Sizes) -> Call:
    x = indices(pool, s.rows, s.count)
    return lambda: torch.cumsum(x, 0)


def kernel(
    op: str,
    variant: str,
    precision: str,
    read: Callable[[Sizes], float],
    written: Callable[[Sizes], float],
    build: Callable[[Pool, Sizes], Call],
    draw: Callable[[random.Random], Sizes],
    points: int = 16,
) -> Kernel:
    return Kernel(
        op=op,
        variant=variant,
        precision=precision,
        read=read,
        written=written,
        build=build,
        draw=draw,
        points=points,
        resident=lambda s: 2 * s.count * s.cols,
    )


def picked(s: Sizes) -> float:
    return 2 * distinct(s.rows, s.count) * s.cols + 8 * s.rows


def every(s: Sizes) -> float:
    return 2 * s.rows * s.cols


KERNELS = [
    kernel("gather", "index_select", "bf16", picked, every, index_select, rows_of, 20),
    kernel("gather", "index", "bf16", picked, every, index, rows_of),
    kernel("gather", "take_along", "fp32", lambda s: 12 * s.rows * s.count, lambda s: 4 * s.rows * s.count, take_along, experts_of, 8),
    # the target is read and written where rows are added
    kernel("scatter_add", "index_add", "bf16", lambda s: every(s) + picked(s), picked, index_add, rows_of, 20),
    kernel("scatter_add", "index_put", "bf16", every, every, index_put, rows_of, 12),
    kernel("topk", "router", "fp32", lambda s: 4 * s.rows * s.cols, lambda s: 12 * s.rows * s.count, topk, experts_of, 20),
    kernel("sort", "assignments", "int64", lambda s: 8 * s.rows, lambda s: 16 * s.rows, sort, assignments),
    kernel("sort", "histogram", "int64", lambda s: 4 * s.rows, lambda s: 4 * s.count, histogram, assignments, 8),
    kernel("sort", "cumsum", "int64", lambda s: 8 * s.rows, lambda s: 8 * s.rows, cumsum, assignments, 8),
]  # fmt: skip


def cases(target: Target, level: Level) -> list[Case]:
    return plan(NAME, KERNELS, target, level)


def prepare(case: Case, pool: Pool) -> list[Call]:
    return calls(KERNELS, case, pool)
