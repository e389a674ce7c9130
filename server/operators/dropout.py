"""Dropout in training, as transformers' classes apply it: kernels of their own in eager code, part of their neighbours' in inductor's."""

from __future__ import annotations

from functools import cache

from tilewise.hwdb import packaged
from tilewise.server.operators import sms
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.plan import Plan


def drop(e: Emitter, plan: Plan, rows: Number, cols: Number, repeat: Number = 1) -> None:
    """Dropout of activations, whose mask of bytes is kept for the backward."""
    if not plan.train:
        return
    mask = rows * cols
    size, kernels = (0 if plan.fused else plan.width * mask), (0 if plan.fused else 1)
    e.memory("dropout", "pointwise", rows, cols, size, size + mask, direction=e.forward, repeat=repeat, kernels=kernels)
    if plan.fused:
        _draw(e, mask * repeat, "compiled", e.forward)
    if e.keep:
        e.save(mask * repeat)
        e.memory(
            "dropout", "pointwise", rows, cols, size + mask, size, direction="backward", repeat=repeat, kernels=kernels
        )


def drop_weights(e: Emitter, plan: Plan, pairs: Number) -> None:
    """Dropout inside a fused attention kernel: the numbers of every pair of query and key, and once more for the backward."""
    e.memory("dropout_seed", "fill", 1, 1, 0, 16, direction=e.forward, kernels=1)
    _draw(e, pairs, "attention", e.forward)
    if e.keep:
        _draw(e, pairs, "attention", "backward")


def _draw(e: Emitter, numbers: Number, way: str, direction: str) -> None:
    """The time of `numbers` random numbers."""
    own, reference = _facts(), sms.facts()["reference"]
    each_s = own["philox"]["operations"] / own["philox"]["per_clock"] / own["elements"][way]
    sms.spend(e, "dropout_numbers", numbers * each_s / (reference["sms"] * reference["clock_hz"]), direction)


@cache
def _facts() -> dict[str, dict[str, float]]:
    return packaged.toml("tilewise.server.operators", "dropout.toml")
