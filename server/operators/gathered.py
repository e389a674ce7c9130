"""Weights that are kept in fp32 and cast before each pass, as FSDP2's mixed precision does it (torch.distributed.fsdp, over one rank)."""

from __future__ import annotations

from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.plan import Plan

PASSES = ("forward", "backward")


def gather(e: Emitter, plan: Plan, parameters: Number, passes: tuple[str, ...] = PASSES) -> None:
    """Casts of `parameters` before each of the passes (freed in between), and of their gradients after the backward.

    A gather casts into one flat buffer and copies out of it; what a collective among several ranks takes is left out.
    """
    if not (plan.train and plan.stack.gathers and e.keep):
        return
    kept, made = plan.kept("weights") * parameters, plan.width * parameters
    with e.scope(part="weights"):
        for direction in passes:
            e.memory("gather_cast", "cast", 1, parameters, kept, made, direction=direction, wide=True)
            e.memory("gather_copy", "copy", 1, parameters, made, made, direction=direction)
        gradients = plan.kept("gradients") * parameters
        e.memory("gradient_cast", "cast", 1, parameters, made, gradients, direction="backward")
