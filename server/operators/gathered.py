"""Weights that are kept in fp32 and cast before each pass, as FSDP2's mixed precision does it over one rank.

Read off torch.distributed.fsdp (_fsdp_param_group.py, _fsdp_collectives.py) and off a profile of torchtitan's Llama on a CPU. Each
parameter is cast, and copied into the buffer that the modules read; gradients are joined in fp32 and copied once more. Several
ranks do the same with collectives in place of the copies.
"""

from __future__ import annotations

from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.plan import Plan

PASSES = ("forward", "backward")


def gather(e: Emitter, plan: Plan, parameters: Number, passes: tuple[str, ...] = PASSES) -> None:
    """Casts of `parameters` before each of the passes, and of their gradients after the backward.

    passes: both, where the casts are freed in between
    """
    if not (plan.gathers and e.keep):
        return
    kept, made = plan.kept("weights") * parameters, plan.width * parameters
    with e.scope(part="weights"):
        for direction in passes:
            e.memory("gather_cast", "cast", 1, parameters, kept, made, direction=direction, wide=True)
            e.memory("gather_copy", "copy", 1, parameters, made, made, direction=direction)
        gradients = plan.kept("gradients") * parameters
        e.memory("gradient_cast", "cast", 1, parameters, made, gradients, direction="backward")
        e.memory("gradient_copy", "copy", 1, parameters, gradients, gradients, direction="backward", wide=True)
