"""Choosing experts and moving tokens: router scores, the sort by expert, gather, and the weighted sum back.

The kernels are those of transformers' grouped_mm_experts_forward (integrations/moe.py) and its backward, where every
gather's gradient is an accumulating index_put that sorts its indices.
"""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.record import Record
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import operation
from tilewise.server.operators.numbers import Number, choose
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import ROUTERS, WEIGHTS
from tilewise.server.operators.variants import Variant

SMALL_SORT = 4096  # elements up to which torch.sort sorts in place (ATen/native/cuda/Sort.cpp)
SINGLE_TILE = (
    2304  # pairs of 16 bytes that CUB's radix sort takes in one tile: 256 threads, 9 each (dispatch_radix_sort.cuh)
)
SCORE = 4  # bytes of an element of a router's scores
INDEX_PUT = (
    6  # kernels of an accumulating index_put besides its sort, by profiles: its source accounts for five (Indexing.cu)
)


class Routing(Record):
    """tokens; routed: token-expert pairs; hidden width; experts; top_k.

    width: bytes of an element of a weighted row
    """

    tokens: Number
    routed: Number
    hidden: Number
    experts: Number
    top_k: Number
    width: int


def radix_kernels(bits: Number) -> Number:
    """Kernels of CUB's onesweep radix sort: two memsets, histogram, prefix sum, and two for every 8 bits."""
    return 4 + 2 * np.ceil(bits / 8)


def sort_kernels(elements: Number) -> Number:
    """Kernels of torch.sort over int64 keys: a copy, the indices (in place a range and its copy, and the keys once more), and the sort."""
    return choose(elements <= SMALL_SORT, 5, 2 + radix_kernels(64))


def index_put_kernels(indices: Number, largest: Number) -> Number:
    """Kernels of an accumulating index_put of `indices` rows into `largest` rows."""
    return INDEX_PUT + choose(indices <= SINGLE_TILE, 1, radix_kernels(np.ceil(np.log2(largest))))


def route(e: Emitter, plan: Plan, r: Routing, style: Variant) -> None:
    """The chosen experts and their weights, and in training the way back to the router's logits."""
    router, weights = ROUTERS[style.router], WEIGHTS[style.weights]
    operation(e, plan, "router", router, r.tokens, r.experts, backward=False)
    scores, chosen = SCORE * r.tokens * r.experts, SCORE * r.routed
    picked = 3 * chosen  # a weight and an int64 each
    e.memory("router_topk", "topk", r.tokens, r.experts, scores, picked, direction=e.forward, kernels=2, wide=True)
    operation(e, plan, "router_weights", weights, r.tokens, r.top_k)
    if not (plan.train and e.keep):
        return
    e.save(scores + picked + (chosen if style.divides else 0))
    e.memory("router_topk", "scatter_add", r.tokens, r.experts, picked, scores, direction="backward", kernels=2)
    e.launches("router", router.backward, r.tokens, r.experts, plan.width, direction="backward")


def permute(e: Emitter, plan: Plan, r: Routing) -> None:
    """Sort the pairs by expert, count and scan the groups, gather the tokens' rows and weights."""
    keys, size = 8 * r.routed, r.routed * r.hidden * plan.width
    e.memory(
        "expert_sort", "sort", r.routed, 1, 2 * keys, 2 * keys, direction=e.forward, kernels=sort_kernels(r.routed)
    )
    offsets = 5 if plan.fused else 9
    e.memory("expert_offsets", "pointwise", r.routed, 1, keys, keys, direction=e.forward, repeat=offsets)
    e.memory("expert_gather", "gather.index", r.routed, r.hidden, size, size, direction=e.forward)
    if not plan.fused:
        e.memory("expert_mask", "mul.row", r.routed, r.hidden, size, size, direction=e.forward)
    if not (plan.train and e.keep):
        return
    e.save(size + 3 * keys)
    summed = r.tokens * r.hidden * plan.width
    if plan.fused:
        _permute_backward_fused(e, r, size)
        return
    e.memory("expert_mask", "copy", r.routed, r.hidden, size, size, direction="backward")
    e.memory("expert_mask", "mul.row", r.routed, r.hidden, size, size, direction="backward")
    e.memory("expert_gather", "fill", r.tokens, r.hidden, 0, summed, direction="backward")
    kernels = index_put_kernels(r.routed, r.tokens)
    e.memory("expert_gather", "scatter_add", r.routed, r.hidden, size, summed, direction="backward", kernels=kernels)
    e.memory("weight_gather", "fill", r.routed, 1, 0, keys / 2, direction="backward")
    kernels = index_put_kernels(r.routed, r.routed)
    e.memory("weight_gather", "scatter_add", r.routed, 1, keys, keys / 2, direction="backward", kernels=kernels)


def _permute_backward_fused(e: Emitter, r: Routing, size: Number) -> None:
    """Inductor adds the rows' gradients atomically into fp32 zeros, and the weights' in a few small kernels."""
    e.memory("expert_gather", "fill", r.tokens, r.hidden, 0, 4 * r.tokens * r.hidden, direction="backward")
    e.memory("expert_gather", "copy", r.routed, r.hidden, size, size, direction="backward")
    e.memory("weight_gather", "pointwise", r.routed, 1, 8 * r.routed, 8 * r.routed, direction="backward", repeat=4)


def combine(e: Emitter, plan: Plan, r: Routing) -> None:
    """Weight each expert's rows, bring them back into token order, add a token's rows up."""
    narrow, size, out = r.routed * r.hidden * plan.width, r.routed * r.hidden * r.width, r.tokens * r.hidden * r.width
    lifted = r.width > plan.width
    if plan.fused:
        e.memory("combine", "reduce.repeat_kv_backward", r.tokens, r.hidden, narrow, out, direction=e.forward)
    else:
        e.memory("combine_weight", "mul.row", r.routed, r.hidden, narrow, size, direction=e.forward)
        e.memory("combine_order", "pointwise", r.routed, 1, 8 * r.routed, 8 * r.routed, direction=e.forward, repeat=2)
        e.memory("combine_gather", "gather.index", r.routed, r.hidden, size, size, direction=e.forward)
        e.memory("combine_sum", "reduce.repeat_kv_backward", r.tokens, r.hidden, size, out, direction=e.forward)
        if lifted:
            e.memory("combine_cast", "cast", r.tokens, r.hidden, out, out / 2, direction=e.forward, wide=True)
    if plan.train and e.keep:
        e.save(narrow + 10 * r.routed)
        if plan.fused:
            _combine_backward_fused(e, r, narrow, out)
        else:
            _combine_backward(e, plan, r, narrow, size, out, lifted)


def _combine_backward_fused(e: Emitter, r: Routing, narrow: Number, out: Number) -> None:
    """Each token's gradient put at its experts' rows, in zeros; then weighed, and the weights' gradients summed, by one kernel."""
    shape = (r.routed, r.hidden)
    e.memory("combine_gather", "fill", *shape, 0, narrow, direction="backward")
    e.memory("combine_gather", "gather.index", *shape, narrow, narrow, direction="backward")
    e.memory("combine_weight", "mul.row", *shape, narrow, narrow, direction="backward")


def _combine_backward(
    e: Emitter, plan: Plan, r: Routing, narrow: Number, size: Number, out: Number, lifted: bool
) -> None:
    shape = (r.routed, r.hidden)
    if lifted:
        e.memory("combine_cast", "cast", r.tokens, r.hidden, out / 2, out, direction="backward")
        e.memory("combine_cast", "cast", *shape, size, narrow, direction="backward", wide=True)
    e.memory("combine_sum", "transpose.repeat_kv", r.tokens, r.hidden, out, size, direction="backward")
    e.memory("combine_gather", "fill", *shape, 0, size, direction="backward")
    kernels = index_put_kernels(r.routed, r.routed)
    e.memory("combine_gather", "scatter_add", *shape, size, size, direction="backward", kernels=kernels)
    e.memory("combine_weight", "mul", *shape, size + narrow, size, direction="backward")
    e.memory("combine_weight", "mul.row", *shape, size, size, direction="backward")
    e.memory("combine_weight", "reduce.sum_row", *shape, size, r.routed * r.width, direction="backward")
