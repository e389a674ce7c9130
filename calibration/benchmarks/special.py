"""Throughput of exp, tanh and their like, and of fp32 multiply-adds, on numbers that stay in registers.

Each function is evaluated `repeats` times on `elements` numbers; two repeat counts tell the rate from the start-up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tilewise.calibration.order import shuffled
from tilewise.calibration.protocol import Call, Case, Level, Target, Unmeasurable

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

NAME = "special"
COLUMNS = ("function", "precision", "elements", "repeats")
FUNCTIONS = ("exp2", "exp", "rsqrt", "log2", "sin", "tanh", "erf", "fma")
REPEATS = (64, 256, 1024)
WAVE = 2048 * 8  # numbers per SM: eight for each of its 2048 resident threads
RATE = 3e12  # evaluations/s, for estimates only


def cases(target: Target, level: Level) -> list[Case]:
    elements = 4096 if level is Level.TINY else target.sms * WAVE
    repeats = REPEATS[:1] if level is Level.TINY else REPEATS
    keys = [(function, "fp32", elements, count) for function in FUNCTIONS for count in repeats]
    return [
        Case(
            family=NAME,
            key=dict(zip(COLUMNS, key, strict=True)),
            estimate_s=5e-6 + elements * key[3] / RATE,
            bytes=8.0 * elements,
            flops=2.0 * elements * key[3] if key[0] == "fma" else 0.0,
            peak="fp32" if key[0] == "fma" else "",
        )
        for key in shuffled(keys, NAME)
    ]


def prepare(case: Case, pool: Pool) -> list[Call]:
    function, elements, repeats = str(case.key["function"]), int(case.key["elements"]), int(case.key["repeats"])
    x, y = pool.random((elements,), torch.float32), pool.output((elements,), torch.float32)
    if pool.device.type == "cpu":
        return [partial(in_torch, x, y, function, repeats)]
    try:
        from tilewise.calibration.benchmarks.special_kernel import launch
    except ImportError as error:
        raise Unmeasurable("needs triton, which is not installed") from error
    return [partial(launch, x, y, repeats, function)]


def in_torch(x: Tensor, y: Tensor, function: str, repeats: int) -> None:
    """The rehearsal's stand-in on a CPU, where nobody uses the figure."""
    y.copy_(x)
    evaluate = getattr(torch, f"{function}_", lambda t: t.mul_(0.5).add_(0.25))
    for _ in range(repeats):
        evaluate(y)
