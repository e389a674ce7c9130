"""Feed-forward layers: the dense MLP, and the activation that experts share with it."""

from __future__ import annotations

from tilewise.server.architecture.model import Mlp
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import joined, norm, operation, project
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import ACTIVATIONS, FUSED, GATE, Sequence
from tilewise.server.operators.variants import Variant


def activation(name: str) -> Sequence:
    """Kernels of a named activation function; one kernel each way for every one that torch has itself."""
    return ACTIVATIONS.get(name, ACTIVATIONS["silu"])


def feed_forward(
    e: Emitter, plan: Plan, mlp: Mlp, style: Variant, tokens: Number, *, input_saved: bool = False
) -> None:
    """down(act(gate(x)) * up(x)), or down(act(up(x)))."""
    *first, down = mlp.projections
    if plan.stack.joins and mlp.gated and len(first) == 2:
        first = [joined("gate_up_proj", first)]
    width = mlp.width // plan.tp
    with e.scope(part="mlp"):
        project(e, plan, first, tokens, save_input=not input_saved and not plan.selective)
        activate(
            e, plan, style.activation or mlp.activation, mlp.gated, tokens, width, packed=mlp.gated and len(first) == 1
        )
        for n in mlp.norms:
            norm(e, plan, n, tokens, style)
        project(e, plan, (down,), tokens, save_input=not plan.selective)


def activate(e: Emitter, plan: Plan, name: str, gated: bool, rows: Number, width: Number, *, packed: bool) -> None:
    """The activation function and its gate; packed: gate and up come from one matrix, whose gradient is concatenated."""
    e.work((2 + gated) * rows * width * plan.width)  # the product and, in the backward, the gradients of its factors
    if plan.fused:
        operation(e, plan, "activation", FUSED["gated" if gated else "activation"], rows, width)
        return
    operation(e, plan, "activation", activation(name), rows, width)
    if not gated:
        return
    operation(e, plan, "gate", GATE, rows, width)
    if packed and plan.train and e.keep:
        size = 2 * rows * width * plan.width
        e.memory("gate_grad", "cat", rows, 2 * width, size, size, direction="backward")
