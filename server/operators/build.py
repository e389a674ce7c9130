"""Walks an architecture under a workload and emits every operator of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tilewise.hwdb.kernels.engines import Kernels
from tilewise.hwdb.table import OperatorTable
from tilewise.server.architecture.model import Architecture, Block, Embedding, Experts, Linear, Norm, Recurrent, Stack
from tilewise.server.operators import engine
from tilewise.server.operators.attention import attend
from tilewise.server.operators.dropout import drop
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.ends import embed, head, optimize, positions, tied
from tilewise.server.operators.experts import mixture
from tilewise.server.operators.feedforward import activate, feed_forward
from tilewise.server.operators.gathered import gather
from tilewise.server.operators.linear import accumulate, norm, operation, project
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.parameters import around_parameters, block_parameters, rank_parameters
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.recurrent import recur
from tilewise.server.operators.sequences import OPERATIONS, RESIDUAL
from tilewise.server.operators.sharding import check
from tilewise.server.operators.variants import Variant, variant
from tilewise.server.workload import Workload


class Ways(NamedTuple):
    """How the sub-layers of a block are emitted."""

    attend: Callable[..., None]
    mixture: Callable[..., None]
    feed_forward: Callable[..., None]


PER_LAYER = "per_layer_model_projection"
PER_LAYER_INPUT = ("per_layer_input_gate", "per_layer_projection")
TORCH = Ways(attend, mixture, feed_forward)
SERVED = Ways(engine.attend, engine.mixture, feed_forward)


def build(arch: Architecture, workload: Workload, kernels: Kernels | None = None) -> OperatorTable:
    """The operators of one step, for every candidate shape at once.

    Raises InvalidInput where the workload cannot be run on the architecture (tensor-parallel sizes, quantisation blocks).
    """
    return walk(arch, workload, kernels).table()


def walk(arch: Architecture, workload: Workload, kernels: Kernels | None = None) -> Emitter:
    """The emitted rows together with what autograd keeps, before they are stacked; kernels: those of the engine, if any."""
    check(arch, workload)
    workload.program.check_family(arch.model_type)
    plan, style = Plan.of(workload, kernels, arch), variant(arch)
    plan = engine.planned(plan, arch) if plan.served else plan
    e = Emitter(plan.plain)
    source: Number = 0
    before: tuple[Embedding, ...] = ()
    hidden_tokens: Number = plan.tokens
    for stack in arch.stacks:
        text = stack.role == "text"
        length = plan.sequence if text else stack.tokens
        encoder = stack is not arch.stacks[-1]
        if not (plan.decode and encoder):
            hidden_tokens = plan.tokens if text else plan.batch * stack.tokens
            _stack(e, plan, stack, style, hidden_tokens, source, _shared(before, stack) if text else ())
        before = stack.embeddings if text else before
        source = plan.context if plan.decode and encoder and text else length
    if style.pools and not plan.fused:
        with e.scope(layer="pooled", part="lm_head", count=1):
            operation(e, plan, "pooled", OPERATIONS[style.pools], hidden_tokens, arch.stacks[-1].hidden)
            for linear in () if arch.head else arch.head_linears:
                project(e, plan, (linear,), plan.batch, plain=True)
    with e.scope(layer="lm_head"):
        head(e, plan, arch, style, hidden_tokens)
    tied(e, plan, arch)
    if plan.gathers:
        with e.scope(layer="weights", count=1):
            last = 0 if arch.head is None or arch.tied else arch.head.parameters // plan.tp
            gather(e, plan, last, ("forward",))  # needed again at once, so kept
            gather(e, plan, around_parameters(arch, plan.tp) - last)
    if workload.optimizer != "none":
        optimize(e, plan, rank_parameters(arch, plan.tp))
    return e


def _shared(before: tuple[Embedding, ...], stack: Stack) -> tuple[Embedding, ...]:
    """The token table that a decoder without one of its own looks its tokens up in: its encoder's."""
    own = any(table.kind == "token" for table in stack.embeddings)
    return () if own else tuple(table for table in before if table.kind == "token")


def _stack(
    e: Emitter, plan: Plan, stack: Stack, style: Variant, tokens: Number, source: Number, shared: tuple[Embedding, ...]
) -> None:  # fmt: skip
    embed(e, plan, (*shared, *stack.embeddings), style, tokens, tower=stack.role == "vision")
    if plan.dropout.embedding:
        with e.scope(layer="embedding", part="embedding", count=1):
            drop(e, plan, tokens, stack.hidden)
    positions(e, plan, stack, style)
    for index, linear in enumerate(stack.linears):
        first = stack.role != "text" and (
            index == 0 or linear.weightless
        )  # reads patches or sound, which have no gradient
        rows = tokens - plan.batch * stack.class_tokens if first else tokens
        with e.scope(layer=f"{stack.name}.linear", part="vision" if stack.role != "text" else "embedding", count=1):
            project(e, plan, (linear,), rows, plain=True, input_gradient=not first)
            if linear.name == PER_LAYER and not plan.fused:  # by constants, before and after the embeddings join
                operation(e, plan, "per_layer_scale", OPERATIONS["scale"], tokens, linear.outputs, repeat=2)
    for block in stack.blocks:
        _block(e, plan, stack, block, style, tokens, source)
    for n in stack.norms:
        with e.scope(layer=f"{stack.name}.{n.name}", part="norm", count=1):
            norm(e, plan, n, tokens, style)
    for linear in stack.pooled:
        with e.scope(layer=f"{stack.name}.pooled", part="vision", count=1):
            project(e, plan, (linear,), plan.batch, plain=True)
    for linear in stack.projector:
        with e.scope(layer=f"{stack.name}.projector", part="vision", count=1):
            project(e, plan, (linear,), plan.batch * stack.projector_tokens, plain=True)


def _block(e: Emitter, plan: Plan, stack: Stack, block: Block, style: Variant, tokens: Number, source: Number) -> None:
    """One layer, as often as it repeats; under full recompute once more, keeping its input alone."""
    name = e.block_label(stack.name, block.layers)
    with e.scope(layer=name, count=block.count):
        if plan.gathers:
            gather(e, plan, block_parameters(block, plan.tp))
        _layer(e, plan, stack, block, style, tokens, source)
        if plan.workload.recompute == "full":
            e.live[name] = e.saved[name]
            e.saved[name] = tokens * stack.hidden * plan.width
            e.forward, e.keep = "recompute", False
            _layer(e, plan, stack, block, style, tokens, source)
            e.forward, e.keep = "forward", True


def _layer(e: Emitter, plan: Plan, stack: Stack, block: Block, style: Variant, tokens: Number, source: Number) -> None:
    _norms(e, plan, block, style, tokens)
    inputs = {linear.name: linear for linear in block.extra_linears if linear.name in PER_LAYER_INPUT}
    gate, back = map(inputs.get, PER_LAYER_INPUT)
    for linear in block.extra_linears:
        if linear.name not in inputs:
            project(e, plan, (linear,), tokens)
    if gate is not None and back is not None:
        whole = sum(linear.outputs for linear in stack.linears if linear.name == PER_LAYER)
        _per_layer_input(e, plan, gate, back, style, tokens, whole)
    ways = SERVED if plan.served else TORCH
    for mixer in block.mixers:
        if isinstance(mixer, Recurrent):
            recur(e, plan, mixer, style, tokens)
        else:
            ways.attend(e, plan, mixer, style, tokens, source)
    if isinstance(block.feed_forward, Experts):
        ways.mixture(e, plan, block.feed_forward, style, tokens)
    elif block.feed_forward is not None:
        saved = block.parallel and len(block.norms) == 1
        ways.feed_forward(e, plan, block.feed_forward, style, tokens, input_saved=saved)
    _residuals(e, plan, block, style, tokens, stack.hidden)


def _per_layer_input(
    e: Emitter, plan: Plan, gate: Linear, back: Linear, style: Variant, tokens: Number, whole: Number
) -> None:
    """Gemma 4: the layer's own embedding of each token, gated by the stream and added to it; then the layer's scale.

    whole: width of the embeddings of all layers; every layer's gradient is written into zeros of that width and added
    """
    project(e, plan, (gate,), tokens)
    activate(e, plan, style.activation or "gelu_pytorch_tanh", True, tokens, gate.outputs, packed=False)
    project(e, plan, (back,), tokens)
    if not plan.fused:
        operation(e, plan, "per_layer_add", RESIDUAL, tokens, back.outputs)
        operation(e, plan, "layer_scale", OPERATIONS["scale_learned"], tokens, back.outputs)
    accumulate(e, plan, tokens, back.outputs)
    if plan.train and e.keep and not plan.fused:
        size = tokens * whole * plan.width
        e.memory("per_layer_grad", "transpose", tokens, whole, 0, size, direction="backward", kernels=2)
        accumulate(e, plan, tokens, whole, name="per_layer_grad")


def _norms(e: Emitter, plan: Plan, block: Block, style: Variant, tokens: Number) -> None:
    """The block's norms; alike ones share rows, and parallel branches share the input they keep."""
    groups: dict[tuple[str, bool, bool, int], list[Norm]] = {}
    for n in block.norms:
        groups.setdefault((n.kind, n.weight, n.bias, id(n.width)), []).append(n)
    for alike in groups.values():
        first = alike[0] if len(alike) == 1 else _named(alike)
        shared = block.parallel and first.kind == "layer"  # both keep the one stream they read
        norm(e, plan, first, tokens, style, repeat=len(alike), saves=1 if shared else len(alike))


def _named(alike: Iterable[Norm]) -> Norm:
    first = next(iter(alike))
    return Norm(name="norms", width=first.width, kind=first.kind, weight=first.weight, bias=first.bias)


def _residuals(e: Emitter, plan: Plan, block: Block, style: Variant, tokens: Number, hidden: Number) -> None:
    """Each sub-layer is added to the stream; in the backward its gradient meets the stream's."""
    branches = len(block.mixers) + (block.feed_forward is not None)
    with e.scope(part="residual"):
        if (style.scales_residual or style.scales_branches) and not plan.fused:
            learned = OPERATIONS["branch_scale" if style.scales_branches else "scale"]
            operation(e, plan, "residual_scale", learned, tokens, hidden, repeat=branches)
        if not plan.fused:  # inductor folds the additions into the norms
            operation(e, plan, "residual", RESIDUAL, tokens, hidden, repeat=branches)
        if plan.dropout.hidden:
            drop(e, plan, tokens, hidden, branches)
        accumulate(e, plan, tokens, hidden, branches)
