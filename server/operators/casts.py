"""Casts of a linear layer's operands to a narrow format.

Eager code launches every step of a cast and casts anew for each product that reads it; inductor makes one pass of a cast (two where
the scale is of the whole tensor) and shares it. Formats that torchao trains by kernels of their own are one pass in every mode.
"""

from __future__ import annotations

from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import ENGINES_OWN
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import FUSED, OPERATIONS

STEPS = {Precision.FP8: OPERATIONS["cast_tensor"], Precision.FP8_ROW: OPERATIONS["cast_row"]}


def narrow(plan: Plan, plain: bool) -> bool:
    """Whether a linear layer's operands are cast at all."""
    return FORMATS[plan.linear].bytes < 2 and not plain


def cast(
    e: Emitter, plan: Plan, name: str, rows: Number, cols: Number, direction: str, *, readers: int = 1, again: bool = False
) -> None:  # fmt: skip
    """Cast rows x cols with its scales for so many products; again: what the forward has cast, whose scale inductor knows."""
    if _stepwise(plan):
        e.launches(name, STEPS[plan.linear].forward, rows, cols, plan.width, direction=direction, repeat=readers)
        return
    if plan.linear == Precision.FP8 and not (plan.served or again):
        e.launches(name, FUSED["largest"].forward, rows, cols, plan.width, direction=direction)
    size = rows * cols
    library = ENGINES_OWN * plan.served
    e.memory(name, "quantize", rows, cols, size * plan.width, size * plan.inner, direction=direction, library=library)


def transposed(e: Emitter, plan: Plan, name: str, rows: Number, cols: Number) -> None:
    """The copy of a cast matrix that a backward product reads along its other side; inductor casts into that order."""
    if _stepwise(plan):
        copied = OPERATIONS["cast_transposed"].forward
        e.launches(name, copied, rows, cols, plan.width, direction="backward")


def _stepwise(plan: Plan) -> bool:
    return plan.linear in STEPS and not plan.fused
