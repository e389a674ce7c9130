"""Feed-forward layers: dense MLPs and mixtures of experts."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.table import Layout
from tilewise.server.architecture.model import Experts, Mlp, Split
from tilewise.server.operators.emitter import Emitter, Number
from tilewise.server.operators.linear import accumulate, norm, operation, project
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import ACTIVATION_FUSED, ACTIVATIONS, GATE, GATED_FUSED, RESIDUAL, Sequence


def activation(name: str) -> Sequence:
    """Kernels of a named activation function; one kernel each way for every one that torch has itself."""
    return ACTIVATIONS.get(name, ACTIVATIONS["silu"])


def feed_forward(e: Emitter, plan: Plan, mlp: Mlp, tokens: Number, *, input_saved: bool = False) -> None:
    """down(act(gate(x)) * up(x)), or down(act(up(x)))."""
    *first, down = mlp.projections
    width = mlp.width // plan.tp
    with e.scope(part="mlp"):
        project(e, plan, first, tokens, save_input=not input_saved and not plan.selective)
        activate(e, plan, mlp.activation, mlp.gated, tokens, width, packed=mlp.gated and len(first) == 1)
        for n in mlp.norms:
            norm(e, plan, n, tokens)
        project(e, plan, (down,), tokens, save_input=not plan.selective)


def activate(e: Emitter, plan: Plan, name: str, gated: bool, rows: Number, width: Number, *, packed: bool) -> None:
    """The activation function and its gate; packed: gate and up come from one matrix, whose gradient is concatenated."""
    if plan.fused:
        operation(e, plan, "activation", GATED_FUSED if gated else ACTIVATION_FUSED, rows, width)
        return
    operation(e, plan, "activation", activation(name), rows, width)
    if not gated:
        return
    operation(e, plan, "gate", GATE, rows, width)
    if packed and plan.train and e.keep:
        size = 2 * rows * width * plan.width
        e.memory("gate_grad", "cat", rows, 2 * width, size, size, direction="backward")


def distinct_experts(count: Number, top_k: Number, tokens: Number) -> Number:
    """Experts that `tokens` tokens hit, expected for independent uniform choices: E (1 - (1 - k/E)^n)."""
    return count * (1 - (1 - top_k / count) ** tokens)


def padded_share(tokens: Number, experts: Experts, tile: int) -> Number:
    """Share of the rows a grouped GEMM computes for nothing when every expert hit is padded to `tile` rows."""
    hit = distinct_experts(experts.count, experts.top_k, tokens)
    per_expert = tokens * experts.top_k / hit
    padded: Number = np.ceil(per_expert / tile) * tile
    return 1 - per_expert / padded


def mixture(e: Emitter, plan: Plan, moe: Experts, tokens: Number) -> None:
    """Router, routed experts as grouped GEMMs over tokens sorted by expert, shared experts, combination."""
    with e.scope(part="moe"):
        project(e, plan, (moe.router,), tokens, plain=True)
        routed = tokens * moe.top_k
        hidden = moe.router.inputs
        _route(e, plan, moe, tokens, routed)
        _permute(e, plan, tokens, routed, hidden)
        _experts(e, plan, moe, tokens, routed)
        _combine(e, plan, tokens, routed, hidden, moe.top_k)
    if moe.shared is not None:
        feed_forward(e, plan, moe.shared, tokens, input_saved=True)
        with e.scope(part="moe"):
            if moe.shared_gate is not None:
                project(e, plan, (moe.shared_gate,), tokens, plain=True, save_input=False)
                operation(e, plan, "shared_gate", GATE, tokens, hidden)
            operation(e, plan, "shared_add", RESIDUAL, tokens, hidden)
    accumulate(e, plan, tokens, hidden, 1 if moe.shared is None else 2)


def _route(e: Emitter, plan: Plan, moe: Experts, tokens: Number, routed: Number) -> None:
    """Softmax in fp32, selection, normalisation of the chosen weights."""
    scores = tokens * moe.count
    wide = 4 * scores
    if not plan.fused:
        e.memory("router_cast", "cast", tokens, moe.count, scores * plan.width, wide, direction=e.forward)
    e.memory("router_softmax", "softmax", tokens, moe.count, wide, wide, direction=e.forward, special=scores)
    e.memory("router_topk", "topk", tokens, moe.count, wide, 12 * routed, direction=e.forward, kernels=2)
    e.memory("router_scale", "pointwise", tokens, moe.top_k, 8 * routed, 4 * routed, direction=e.forward, repeat=2)
    if plan.train and e.keep:
        e.save(wide + 4 * routed + 8 * routed)
        e.memory("router_scale", "pointwise", tokens, moe.top_k, 8 * routed, 4 * routed, direction="backward", repeat=4)
        e.memory("router_topk", "scatter_add", tokens, moe.count, 12 * routed, wide, direction="backward", kernels=2)
        e.memory("router_softmax", "softmax_backward", tokens, moe.count, 2 * wide, wide, direction="backward")
        e.memory("router_cast", "cast", tokens, moe.count, wide, scores * plan.width, direction="backward")


SMALL_SORT = 4096  # elements up to which torch sorts in one kernel (ATen/native/cuda/Sort.cu)


def _permute(e: Emitter, plan: Plan, tokens: Number, routed: Number, hidden: Number) -> None:
    """Sort the choices by expert, gather the tokens' rows, count and scan the groups."""
    keys, size = 8 * routed, routed * hidden * plan.width
    kernels = np.where(np.asarray(routed) <= SMALL_SORT, 1, 20)[()]
    e.memory("expert_sort", "sort", routed, 1, 2 * keys, 2 * keys, direction=e.forward, kernels=kernels)
    e.memory("expert_offsets", "pointwise", routed, 1, keys, keys, direction=e.forward, repeat=9)
    e.memory("expert_gather", "gather", routed, hidden, size, size, direction=e.forward)
    e.memory("expert_mask", "pointwise_strided", routed, hidden, size, size, direction=e.forward)
    if plan.train and e.keep:
        e.save(size + 5 * keys)
        e.memory("expert_mask", "pointwise_strided", routed, hidden, size, size, direction="backward", kernels=2)
        grad = tokens * hidden * plan.width
        e.memory("expert_gather", "fill", tokens, hidden, 0, grad, direction="backward")
        e.memory("expert_gather", "scatter_add", routed, hidden, size, grad, direction="backward", kernels=kernels)


def _experts(e: Emitter, plan: Plan, moe: Experts, tokens: Number, routed: Number) -> None:
    """Grouped GEMMs up and down with the activation between; eager transformers masks after each product."""
    hit = distinct_experts(moe.count, moe.top_k, tokens)
    shards = []
    for linear in moe.expert:
        inputs = linear.inputs // plan.tp if linear.split == Split.ROW else linear.inputs
        outputs = linear.outputs // plan.tp if linear.split == Split.COLUMN else linear.outputs
        shards.append((linear.name, inputs, outputs))
    *first, down = shards
    packed = moe.gated and len(first) == 2 and not plan.fused
    if moe.gated and len(first) == 2:  # transformers 5 holds gate and up as one tensor
        first = [("gate_up_proj", first[0][1], first[0][2] + first[1][2])]
    for name, inputs, outputs in first:
        _grouped(e, plan, name, routed, outputs, inputs, hit, moe.count)
    width = moe.width // plan.tp
    activate(e, plan, moe.activation, moe.gated, routed, width, packed=packed or (moe.gated and len(first) == 1))
    if plan.train and e.keep and not plan.selective:
        e.save(routed * width * plan.width)  # the input of the down-projection
    _grouped(e, plan, *down[:1], routed, down[2], down[1], hit, moe.count)


def _grouped(
    e: Emitter, plan: Plan, name: str, rows: Number, n: Number, k: Number, hit: Number, experts: Number
) -> None:
    shape = {"precision": plan.linear, "widths": (plan.inner, plan.weight, float(plan.width))}
    e.grouped_gemm(name, rows, n, k, hit, direction=e.forward, **shape)  # type: ignore[arg-type]
    if not plan.fused:
        _mask(e, plan, rows, n, e.forward)
    if plan.train and e.keep:
        back = {**shape, "direction": "backward"}
        e.grouped_gemm(name, rows, n, k, experts, layout=Layout.WEIGHT_GRADIENT, **back)  # type: ignore[arg-type]
        e.grouped_gemm(name, rows, k, n, hit, layout=Layout.INPUT_GRADIENT, **back)  # type: ignore[arg-type]
        if not plan.fused:
            _mask(e, plan, rows, n, "backward")


def _mask(e: Emitter, plan: Plan, rows: Number, cols: Number, direction: str) -> None:
    """masked_fill: a copy and a masked write."""
    size = rows * cols * plan.width
    e.memory("expert_mask", "copy", rows, cols, size, size, direction=direction)
    e.memory("expert_mask", "pointwise_strided", rows, cols, size, size, direction=direction)


def _combine(e: Emitter, plan: Plan, tokens: Number, routed: Number, hidden: Number, top_k: Number) -> None:
    """Weight each expert's rows, bring them back into token order, add a token's rows up."""
    size, out = routed * hidden * plan.width, tokens * hidden * plan.width
    if plan.fused:
        e.memory("combine", "scatter_add", routed, hidden, size, out, direction=e.forward)
    else:
        e.memory("combine_weight", "pointwise_strided", routed, hidden, size, size, direction=e.forward)
        e.memory("combine_order", "pointwise", routed, 1, 8 * routed, 8 * routed, direction=e.forward, repeat=2)
        e.memory("combine_gather", "gather", routed, hidden, size, size, direction=e.forward)
        e.memory("combine_sum", "reduce", tokens, hidden * top_k, size, out, direction=e.forward)
    if plan.train and e.keep:
        e.save(size + 10 * routed)
        e.memory("combine_expand", "transpose", routed, hidden, out, size, direction="backward")
        e.memory("combine_gather", "fill", routed, hidden, 0, size, direction="backward")
        e.memory("combine_gather", "scatter_add", routed, hidden, size, size, direction="backward")
        e.memory("combine_weight", "mul", routed, hidden, 2 * size, size, direction="backward")
        e.memory("combine_weight", "pointwise_strided", routed, hidden, size, size, direction="backward")
        e.memory("combine_weight", "reduce", routed, hidden, size, routed * plan.width, direction="backward")
