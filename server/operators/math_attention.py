"""Attention by torch's math path: fp32 products and a softmax over every query-key pair.

sdpa takes it where it is told to, and where keys and values have one head and leave it to broadcasting to meet the query heads
(transformers' Falcon with multi_query): no fused kernel accepts that. torch's _scaled_dot_product_attention_math (2.11,
ATen/native/transformers/attention.cpp) lifts everything to fp32 (allowFP16BF16ReductionMathSDP is off), scales queries and keys,
adds the 16-bit mask in place, takes the softmax and looks for rows that are masked whole (_safe_softmax), and casts the weights
back beside the result. Products run without tensor cores. What keys cost beyond their bytes was measured (math_attention.toml).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from tilewise.hwdb import packaged
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Layout
from tilewise.server.operators.attention_kernel import Heads, make_additive, pairs
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number, larger, same
from tilewise.server.operators.plan import Plan

WIDE = 4  # bytes of an element in fp32
# How the products' factors lie: x[m,k] by w[k,n], by w[n,k], and x[k,m] by w[k,n]
_NN, _NT, _TN = Layout.INPUT_GRADIENT, Layout.FORWARD, Layout.WEIGHT_GRADIENT


def math_attention(e: Emitter, plan: Plan, heads: Heads, *, causal: bool) -> None:
    """One attention sub-layer's kernels, between its projections and the output's."""
    both = plan.batch * heads.q
    area = both * heads.seq_q * heads.seq_kv
    share = pairs(heads.seq_q, heads.seq_kv, causal) / larger(
        heads.seq_q * heads.seq_kv, 1
    )  # of an image tower without images too
    turned = _lift(e, plan, heads)
    _product(e, "scores", (heads.seq_q, heads.seq_kv, heads.dim), both, share, _NN if turned else _NT)
    _softmax(e, plan, both * heads.seq_q, heads.seq_kv, area)
    _product(e, "weighted_values", (heads.seq_q, heads.dim_v, heads.seq_kv), both, share, _NN)
    rows, out = both * heads.seq_q, both * heads.seq_q * heads.dim_v
    memory = partial(e.memory, direction=e.forward)
    memory("attention_cast", "cast", rows, heads.dim_v, WIDE * out, plan.width * out, wide=True)
    if not (plan.fused or plan.decode):
        memory("contiguous", "transpose", rows, heads.dim_v, plan.width * out, plan.width * out)
    if plan.train and e.keep:
        e.save((2 * WIDE + 1) * area + 2 * WIDE * both * heads.seq_kv * heads.dim)
        _backward(e, plan, heads, area, share, turned)


def _lift(e: Emitter, plan: Plan, heads: Heads) -> bool:
    """Queries and keys scaled in fp32, and values in fp32; whether keys lie transposed for the product.

    Keys and values are written out for every head where heads share them. Of one broadcast head the product does that itself, to keys that
    are transposed already, and in a batch of one sequence it reads the view. Inductor scales and casts in the kernels that rotate.
    """
    sizes = (heads.q * heads.seq_q, heads.kv * heads.seq_kv, heads.q * heads.seq_kv)
    queries, few, keys = (plan.batch * n for n in sizes)
    size, small, large = queries * heads.dim, few * heads.dim, WIDE * keys * heads.dim
    memory = partial(e.memory, direction=e.forward)
    broadcast = same(heads.kv, 1)
    copied = not same(heads.q, heads.kv) and not (same(plan.batch, 1) and broadcast and not plan.decode)
    turned = copied and broadcast
    if plan.fused:
        memory("lift_q", "cast", queries, heads.dim, 0, (WIDE - plan.width) * size, kernels=0)
        if copied:
            memory("lift_k", "transpose" if turned else "copy", keys, heads.dim, plan.width * small, large)
            memory("lift_v", "copy", keys, heads.dim_v, plan.width * small, large)
        return turned
    memory("lift_q", "cast", queries, heads.dim, plan.width * size, WIDE * size)
    memory("lift_q", "pointwise", queries, heads.dim, WIDE * size, WIDE * size, wide=True)
    memory("lift_kv", "cast", few, heads.dim, plan.width * small, WIDE * small, repeat=2)
    memory("lift_kv", "pointwise", few, heads.dim, WIDE * small, WIDE * small, wide=True)
    if copied:
        memory("lift_k", "transpose", keys, heads.dim, WIDE * small, large)
        memory("lift_v", "transpose", keys, heads.dim_v, WIDE * small, large)
    if turned:
        slow = large * (_facts()["transposed_keys"]["factor"] - 1)
        memory("lift_k_slow", "transpose", keys, heads.dim, 0, slow, kernels=0)
    return turned


def _softmax(e: Emitter, plan: Plan, rows: Number, cols: Number, area: Number) -> None:
    """The mask added, the softmax, and in eager code the search for rows that are masked whole; compiled one kernel.

    The mask is of 16 bit: an add of two types converts in its kernel, which handles four elements a thread, as rope.add does
    (CUDALoops.cuh); the choice between rows and zero handles two of 4 bytes, as mul.row does.
    """
    whole, memory = WIDE * area, partial(e.memory, direction=e.forward, wide=True)
    if plan.fused:
        memory("softmax", "softmax.compiled", rows, cols, whole, whole, special=area)
        return
    make_additive(e, plan, plan.sequence, cols)
    memory("mask_add", "rope.add", rows, cols, whole, whole)
    memory("softmax", "softmax", rows, cols, whole, whole, special=area)
    memory("masked_rows", "pointwise", rows, cols, whole, area)
    memory("masked_rows", "reduce", rows, cols, area, rows, wide=False)
    memory("masked_rows", "fill", 1, 1, 0, WIDE)
    memory("masked_rows", "pointwise_strided", rows, cols, whole, whole)
    memory("weights_cast", "cast", rows, cols, whole, whole / 2)


def _product(
    e: Emitter, name: str, sizes: tuple[Number, Number, Number], groups: Number, share: Number, layout: Layout,
    direction: str = "",
) -> None:  # fmt: skip
    """A batched product in fp32 over whole sequences, of which the model needs a `share`; of one row a stream."""
    m, n, k = sizes
    work = 2.0 * m * n * k * groups
    if same(m, 1):
        read, written = WIDE * groups * n * k, WIDE * groups * n
        e.memory(name, "reduce", groups * n, k, read, written, direction=e.forward, flops=work, wide=True)
        return
    e.add(
        name, direction or e.forward, Kind.GEMM, m=m, n=n, k=k, groups=groups, layout=layout, precision=Precision.FP32,
        flops=share * work if e.keep else 0, executed_flops=work, output_bytes=WIDE,
        bytes_read=WIDE * groups * (m * k + n * k), bytes_written=WIDE * groups * m * n,
    )  # fmt: skip


def _backward(e: Emitter, plan: Plan, heads: Heads, area: Number, share: Number, turned: bool) -> None:
    """Gradients of values, weights, keys and queries, through the softmax and the choice of rows that are masked whole."""
    q, kv, d, dv, both = heads.seq_q, heads.seq_kv, heads.dim, heads.dim_v, plan.batch * heads.q
    out, whole, back = both * q * dv, WIDE * area, "backward"
    e.memory("attention_cast", "cast", both * q, dv, plan.width * out, WIDE * out, direction=back)
    _product(e, "weighted_values", (kv, dv, q), both, share, _TN, back)
    _product(e, "weighted_values", (q, kv, dv), both, share, _NT, back)
    softmax = "softmax.compiled" if plan.fused else "softmax_backward"
    e.memory("softmax", softmax, both * q, kv, 2 * whole, whole, direction=back, wide=True)
    _product(e, "scores", (d, kv, q), both, share, _TN, back)
    _product(e, "scores", (q, d, kv), both, share, _NT if turned else _NN, back)
    _lower(e, plan, heads, both)


def _lower(e: Emitter, plan: Plan, heads: Heads, both: Number) -> None:
    """Gradients of keys and values added up over the heads that share them, unscaled and cast back."""
    memory = partial(e.memory, direction="backward", wide=True)
    queries, keys = both * heads.seq_q, both * heads.seq_kv
    few = keys / heads.q * heads.kv
    size, small = queries * heads.dim, few * heads.dim
    if not same(heads.q, heads.kv):
        memory("lift_kv", "reduce.repeat_kv_backward", few, heads.dim, WIDE * keys * heads.dim, WIDE * small, repeat=2)
    if plan.fused:  # the kernel that rotates back reads fp32
        memory("lift_q", "cast", queries, heads.dim, (WIDE - plan.width) * size, 0, kernels=0)
        return
    memory("lift_kv", "pointwise", few, heads.dim, WIDE * small, WIDE * small)
    memory("lift_kv", "cast", few, heads.dim, WIDE * small, plan.width * small, repeat=2)
    memory("lift_q", "pointwise", queries, heads.dim, WIDE * size, WIDE * size)
    memory("lift_q", "cast", queries, heads.dim, WIDE * size, plan.width * size)


@cache
def _facts() -> dict[str, Any]:
    return packaged.toml("tilewise.server.operators", "math_attention.toml")
