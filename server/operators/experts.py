"""Mixture of experts: router, routed experts as grouped GEMMs over tokens sorted by expert, shared experts."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Layout
from tilewise.server.architecture.model import Architecture, Experts
from tilewise.server.architecture.sizes import column
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.feedforward import activate, feed_forward
from tilewise.server.operators.linear import accumulate, all_reduce, operation, project, shard
from tilewise.server.operators.numbers import Notes, Number, choose, larger
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.routing import Routing, combine, index_put_kernels, permute, route
from tilewise.server.operators.sequences import LIFT, OPERATIONS, RESIDUAL, SHARED_GATE
from tilewise.server.operators.variants import Variant

EXPERT_TILE = 128  # rows that production grouped GEMMs pad each expert to (DeepGEMM's contiguous layout, vLLM)


def distinct_experts(count: Number, top_k: Number, tokens: Number) -> Number:
    """Experts that `tokens` tokens hit, expected for independent uniform choices: E (1 - (1 - k/E)^n)."""
    return count * (1 - np.power(1 - top_k / count, tokens))  # numpy's own also for one number: its last bit is another


def chance_skew(each: Number) -> Number:
    """Exponent of the power law whose groups differ as much as chance makes them: `each` rows on average, drawn independently.

    Their number differs by its square root, so its logarithm by 1 / sqrt(each); so does that of rank^-skew by the skew, as the logarithm of
    a rank does by 1. Few rows are one tile of an expert whatever their number.
    """
    return choose(each > EXPERT_TILE / 2, larger(each, 1) ** -0.5, 0.0)


def padded_share(tokens: Number, experts: Experts, tile: int) -> Number:
    """Share of the rows a grouped GEMM computes for nothing when every expert hit is padded to `tile` rows."""
    hit = distinct_experts(experts.count, experts.top_k, tokens)
    per_expert = tokens * experts.top_k / hit
    padded: Number = np.ceil(per_expert / tile) * tile
    return 1 - per_expert / padded


def padding_notes(arch: Architecture, tokens: int, candidates: int = 1) -> list[Notes]:
    """How full the experts are at this many tokens, for every distinct mixture of each candidate."""
    found: list[Notes] = [{} for _ in range(candidates)]
    for moe in (block.feed_forward for stack in arch.stacks for block in stack.blocks):
        if isinstance(moe, Experts):
            hit = distinct_experts(moe.count, moe.top_k, tokens)
            figures = hit, moe.count, tokens * moe.top_k / hit, padded_share(tokens, moe, EXPERT_TILE)
            for notes, *each in zip(found, *(column(figure, candidates) for figure in figures), strict=True):
                notes[_padding_note(*each)] = None
    return found


def _padding_note(hit: float, count: int, rows: float, waste: float) -> str:
    return (
        f"{hit:.4g} of {count} experts are hit, {rows:.4g} tokens each; a kernel that pads experts to "
        f"{EXPERT_TILE} rows would waste {waste:.2%} of their work"
    )


def mixture(e: Emitter, plan: Plan, moe: Experts, style: Variant, tokens: Number) -> None:
    """One mixture-of-experts sub-layer on `tokens` rows."""
    hidden = moe.router.inputs
    routing = Routing(
        tokens, tokens * moe.top_k, moe.inputs, moe.count, moe.top_k, 4 if style.combines_fp32 else plan.width
    )
    with e.scope(part="moe"):
        _score(e, plan, moe, style, tokens)
        if style.router == "every_expert":
            every_expert(e, plan, moe, routing)
        else:
            route(e, plan, routing, style)
            enter(e, plan, moe, tokens)
            permute(e, plan, routing)
            _experts(e, plan, moe, routing, style)
            combine(e, plan, routing)
            leave(e, plan, moe, tokens)
            if style.scales_routed and not plan.fused:
                operation(e, plan, "routed_scale", OPERATIONS["scale"], tokens, hidden)
    all_reduce(e, plan, tokens, hidden, e.forward)
    if plan.train and e.keep:
        all_reduce(e, plan, tokens, hidden, "backward")
    if moe.shared is not None or moe.shared_gate is not None:
        if moe.shared is not None:  # else of no width: its gate and its sum run
            feed_forward(e, plan, moe.shared, style, tokens, input_saved=True)
        with e.scope(part="moe"):
            if moe.shared_gate is not None:
                project(e, plan, (moe.shared_gate,), tokens, plain=True, save_input=False)
                operation(e, plan, "shared_gate", SHARED_GATE, tokens, hidden)
            lifted = style.shared_fp32 and not plan.fused
            operation(e, plan, "shared_add", OPERATIONS["shared_add_fp32"] if lifted else RESIDUAL, tokens, hidden)
    accumulate(e, plan, tokens, hidden, 1 + (moe.shared is not None) + (moe.shared_gate is not None))


def _score(e: Emitter, plan: Plan, moe: Experts, style: Variant, tokens: Number) -> None:
    """The router's product; some lift its input to fp32, and some keep a matrix of 16 bits, to be lifted too."""
    if not style.lifts_router:
        project(e, plan, (moe.router,), tokens, plain=True)
        return
    if not plan.fused:
        operation(e, plan, "router_lift", LIFT, tokens, moe.router.inputs)
        if style.lifts_router == "both":
            operation(e, plan, "router_lift", LIFT, moe.count, moe.router.inputs)
    project(e, replace(plan, plain=Precision.FP32, width=4), (moe.router,), tokens, plain=True)


def every_expert(e: Emitter, plan: Plan, moe: Experts, r: Routing) -> None:
    """Llama 4 sends every token through every expert, scaled by a score that is zero for all but the chosen ones."""
    rows, small, size = (
        r.experts * r.tokens,
        r.tokens * r.experts * plan.width,
        r.experts * r.tokens * r.hidden * plan.width,
    )
    one = size / r.experts
    e.memory("router_topk", "topk", r.tokens, r.experts, small, 10 * r.routed, direction=e.forward, kernels=2)
    e.memory("router_scores", "pointwise", r.tokens, r.experts, 2 * small, 2 * small, direction=e.forward, repeat=6)
    e.memory("expert_inputs", "transpose.repeat_kv", r.tokens, r.hidden, one, size, direction=e.forward)
    e.memory("expert_inputs", "mul.row", rows, r.hidden, size, size, direction=e.forward)
    needed = moe.top_k / moe.count
    for name, outputs, inputs in (("gate_up_proj", 2 * moe.width, r.hidden), ("down_proj", r.hidden, moe.width)):
        if name == "down_proj":
            activate(e, plan, moe.activation, moe.gated, rows, moe.width, packed=moe.gated)
        _batched(e, plan, name, r.tokens, outputs // plan.tp, inputs, moe.count, needed)
    e.memory("combine_sum", "reduce.repeat_kv_backward", r.tokens, r.hidden, size, one, direction=e.forward)
    if plan.train and e.keep:
        e.save(2 * size + rows * moe.width * plan.width)
        e.memory("combine_sum", "transpose.repeat_kv", r.tokens, r.hidden, one, size, direction="backward")
        e.memory("expert_inputs", "mul", rows, r.hidden, 2 * size, size, direction="backward")
        e.memory("expert_inputs", "mul.row", rows, r.hidden, size, size, direction="backward")
        e.memory("expert_inputs", "reduce.sum_row", rows, r.hidden, size, rows * plan.width, direction="backward")
        e.memory("expert_inputs", "reduce.repeat_kv_backward", r.tokens, r.hidden, size, one, direction="backward")
        e.memory(
            "router_scores", "pointwise", r.tokens, r.experts, 2 * small, 2 * small, direction="backward", repeat=6
        )


def _batched(
    e: Emitter, plan: Plan, name: str, m: Number, n: Number, k: Number, groups: Number, needed: Number
) -> None:
    """y[m,n] of every group and its gradients, of which the model needs a part."""
    widths = (plan.inner, plan.weight, float(plan.width))
    ways = [(m, n, k, Layout.INPUT_GRADIENT, e.forward)]
    if plan.train and e.keep:
        ways += [(k, n, m, Layout.WEIGHT_GRADIENT, "backward"), (m, k, n, Layout.FORWARD, "backward")]
    for *sizes, layout, direction in ways:
        e.gemm(
            name,
            *sizes,
            precision=plan.linear,
            widths=widths,
            layout=layout,
            direction=direction,
            groups=groups,
            needed=needed,
        )


def enter(e: Emitter, plan: Plan, moe: Experts, tokens: Number) -> None:
    """Every token into the narrower width of the routed experts, where they have one."""
    if moe.latent:
        project(e, plan, moe.latent[:1], tokens, save_input=False)


def leave(e: Emitter, plan: Plan, moe: Experts, tokens: Number) -> None:
    """The sum of a token's experts back into the model's width."""
    if moe.latent:
        project(e, plan, moe.latent[1:], tokens)


def _experts(e: Emitter, plan: Plan, moe: Experts, routing: Routing, style: Variant) -> None:
    """Up and down with the activation between; transformers 5 holds an expert's gate and up as one matrix."""
    # An expert without rows has no tiles, and its matrix is not read: with every matrix, calibrated points of few rows would have
    # moved up to 5.9 TB/s on an H100 of 3.35 (measurements/grouped_gemm.csv, hit < groups)
    loaded = distinct_experts(moe.count, moe.top_k, routing.tokens)
    *first, down = [(linear.name, *shard(linear, plan.tp)) for linear in moe.expert]
    if moe.gated and len(first) == 2:
        first = [("gate_up_proj", first[0][1], first[0][2] + first[1][2])]
    for name, inputs, outputs in first:
        _grouped(e, plan, name, routing.routed, outputs, inputs, loaded, moe)
    width = moe.width // plan.tp
    activate(e, plan, style.activation or moe.activation, moe.gated, routing.routed, width, packed=moe.gated)
    if plan.train and e.keep and not plan.selective:
        e.save(routing.routed * width * plan.width)  # the input of the down-projection
    _grouped(e, plan, down[0], routing.routed, down[2], down[1], loaded, moe)


def _grouped(
    e: Emitter, plan: Plan, name: str, rows: Number, n: Number, k: Number, loaded: Number, moe: Experts
) -> None:
    """A grouped GEMM and its gradients; eager transformers masks every product for expert parallelism."""
    experts = moe.count
    shape = {"precision": plan.linear, "widths": (plan.inner, plan.weight, float(plan.width))}
    uneven = {**shape, "skew": chance_skew(rows / experts)}
    e.grouped_gemm(name, rows, n, k, loaded, direction=e.forward, **uneven)  # type: ignore[arg-type]
    if moe.expert[0].bias and not plan.fused:
        _bias(e, plan, name, rows, n, experts)
    if not plan.fused:
        _mask(e, plan, rows, n, e.forward)
    elif plan.train:  # which are kept masked; else the kernel that reads them masks
        e.memory("expert_mask", "copy", rows, n, rows * n * plan.width, rows * n * plan.width, direction=e.forward)
    if plan.train and e.keep:
        e.gradient(experts * n * k * plan.width, rows * (2 * n + k) * plan.width)
        back = {**shape, "direction": "backward"}
        e.grouped_gemm(name, n, k, rows, experts, layout=Layout.WEIGHT_GRADIENT, **back)  # type: ignore[arg-type]
        back["skew"] = uneven["skew"]
        e.grouped_gemm(name, rows, k, n, loaded, layout=Layout.INPUT_GRADIENT, **back)  # type: ignore[arg-type]
        if not plan.fused:
            _mask(e, plan, rows, n, "backward")


def _bias(e: Emitter, plan: Plan, name: str, rows: Number, cols: Number, experts: Number) -> None:
    """Each row's expert's bias, gathered and added; its gradient scattered back."""
    size = rows * cols * plan.width
    e.memory(f"{name}.bias", "gather.index", rows, cols, size, size, direction=e.forward)
    e.memory(f"{name}.bias", "add", rows, cols, 2 * size, size, direction=e.forward)
    if plan.train and e.keep:
        whole, kernels = experts * cols * plan.width, index_put_kernels(rows, experts)
        e.memory(f"{name}.bias", "fill", experts, cols, 0, whole, direction="backward")
        e.memory(f"{name}.bias", "scatter_add", rows, cols, size, whole, direction="backward", kernels=kernels)


def _mask(e: Emitter, plan: Plan, rows: Number, cols: Number, direction: str) -> None:
    """masked_fill: a copy and a masked write."""
    size = rows * cols * plan.width
    e.memory("expert_mask", "copy", rows, cols, size, size, direction=direction)
    e.memory("expert_mask", "mul.row", rows, cols, size, size, direction=direction)
