"""The vocabulary's ends: cross entropy with float upcast, kernel by kernel and whole, and embeddings."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import Tensor

from tilewise.calibration.benchmarks.traffic import COLUMNS, Kernel, Sizes, calls, distinct, indices, plan
from tilewise.calibration.protocol import Call, Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

__all__ = ["COLUMNS", "NAME", "cases", "prepare"]

NAME = "loss"
ATEN = torch.ops.aten
VOCABULARIES = (
    32000,
    32064,
    49152,
    50257,
    50304,
    65024,
    100352,
    128256,
    131072,
    151936,
    152064,
    201088,
    256000,
    262144,
)
MEAN, IGNORE = 1, -100  # at::Reduction::Mean and the default ignore_index


def logits(rng: random.Random) -> Sizes:
    return Sizes(rng.choice((64, 256, 512, 1000, 1024, 2048, 3000, 4096, 8192, 16384)), rng.choice(VOCABULARIES))


def lookups(rng: random.Random) -> Sizes:
    """Tokens x hidden out of a table of count rows."""
    rows, cols = (
        rng.choice((1, 32, 512, 1024, 2048, 4096, 8192, 16384)),
        rng.choice((768, 896, 2048, 2560, 4096, 5120, 8192)),
    )
    return Sizes(rows, cols, 0, rng.choice(VOCABULARIES))


def log_softmax(pool: Pool, s: Sizes) -> Call:
    x = pool.random((s.rows, s.cols), torch.float32)
    return lambda: torch.log_softmax(x, -1)


def log_softmax_backward(pool: Pool, s: Sizes) -> Call:
    grad, y = (pool.random((s.rows, s.cols), torch.float32) for _ in "gy")
    return lambda: ATEN._log_softmax_backward_data(grad, y, -1, torch.float32)


def nll(pool: Pool, s: Sizes) -> Call:
    x, labels = pool.random((s.rows, s.cols), torch.float32), indices(pool, s.rows, s.cols)
    return lambda: ATEN.nll_loss_forward(x, labels, None, MEAN, IGNORE)


def nll_backward(pool: Pool, s: Sizes) -> Call:
    """A fill of the whole gradient and a scatter of one number a row."""
    x, labels = pool.random((s.rows, s.cols), torch.float32), indices(pool, s.rows, s.cols)
    grad, weight = (torch.ones((), device=pool.device) for _ in "gw")
    return lambda: ATEN.nll_loss_backward(grad, x, labels, None, MEAN, IGNORE, weight)


def cross_entropy(pool: Pool, s: Sizes) -> Call:
    x, labels = pool.random((s.rows, s.cols), torch.bfloat16), indices(pool, s.rows, s.cols)
    return lambda: F.cross_entropy(x.float(), labels)


def cross_entropy_backward(pool: Pool, s: Sizes) -> Call:
    """The gradient of the bf16 logits: fill, scatter, log-softmax backward, cast."""
    y, labels = pool.random((s.rows, s.cols), torch.float32), indices(pool, s.rows, s.cols)
    grad, weight = (torch.ones((), device=pool.device) for _ in "gw")

    def call() -> Tensor:
        sparse = ATEN.nll_loss_backward(grad, y, labels, None, MEAN, IGNORE, weight)
        dense: Tensor = ATEN._log_softmax_backward_data(sparse, y, -1, torch.float32)
        return dense.bfloat16()

    return call


def embedding(pool: Pool, s: Sizes) -> Call:
    table, tokens = pool.random((s.count, s.cols), torch.bfloat16), indices(pool, s.rows, s.count)
    return lambda: F.embedding(tokens, table)


def embedding_backward(pool: Pool, s: Sizes) -> Call:
    """A fill of the table's gradient, a sort of the tokens, and the sums by token."""
    grad, tokens = pool.random((s.rows, s.cols), torch.bfloat16), indices(pool, s.rows, s.count)
    return lambda: ATEN.embedding_dense_backward(grad, tokens, s.count, -1, False)


def vocabulary(
    op: str,
    variant: str,
    precision: str,
    read: float,
    written: float,
    build: Callable[[Pool, Sizes], Call],
    points: int,
) -> Kernel:
    """A kernel over logits; `read` and `written` are bytes per logit."""
    return Kernel(
        op=op,
        variant=variant,
        precision=precision,
        read=lambda s: read * s.rows * s.cols,
        written=lambda s: written * s.rows * s.cols,
        build=build,
        draw=logits,
        points=points,
        limit_bytes=6e9,
        resident=lambda s: 4 * s.rows * s.cols,
    )


LOOKUP = Kernel(
    op="embedding",
    variant="lookup",
    precision="bf16",
    read=lambda s: 2 * distinct(s.rows, s.count) * s.cols + 8 * s.rows,
    written=lambda s: 2 * s.rows * s.cols,
    build=embedding,
    draw=lookups,
    points=24,
    limit_bytes=4.5e9,
    resident=lambda s: 2 * s.count * s.cols,
)
KERNELS = [
    vocabulary("cross_entropy", "log_softmax", "fp32", 4, 4, log_softmax, 24),
    vocabulary("cross_entropy", "nll", "fp32", 32 / 256000, 0, nll, 8),  # a sector a row, hardly any traffic
    vocabulary("cross_entropy", "upcast", "bf16", 2 + 4, 4 + 4, cross_entropy, 24),
    vocabulary("cross_entropy_backward", "log_softmax", "fp32", 8, 4, log_softmax_backward, 24),
    vocabulary("cross_entropy_backward", "nll", "fp32", 0, 4, nll_backward, 14),
    vocabulary("cross_entropy_backward", "upcast", "fp32", 8 + 4, 4 + 4 + 2, cross_entropy_backward, 14),
    LOOKUP,
    replace(
        LOOKUP,
        op="embedding_backward",
        variant="dense",
        read=lambda s: 2 * s.rows * s.cols,
        written=lambda s: 2 * s.count * s.cols,
        build=embedding_backward,
    ),
]


def cases(target: Target, level: Level) -> list[Case]:
    return plan(NAME, KERNELS, target, level)


def prepare(case: Case, pool: Pool) -> list[Call]:
    return calls(KERNELS, case, pool)
