"""Attention by torch's math path: fp32 products and a softmax over every query-key pair.

sdpa takes it where it is told to, and where keys and values have one head and leave it to broadcasting to meet the query heads
(transformers' Falcon with multi_query): no fused kernel accepts that. Everything is lifted to fp32, whose products run without
tensor cores. Eager kernels are those of a trace (programs.csv); compiled ones and what keys cost beyond their bytes are those of one
model's profiles (2 layers, 32 heads of 64, one H100 SXM5 80 GB, torch 2.11.0+cu130, transformers 5.17.0, 2026-11-28).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from tilewise.hwdb import packaged
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Layout
from tilewise.server.operators.attention_kernel import Heads, make_additive, pairs
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number, same
from tilewise.server.operators.plan import Plan

WIDE = 4  # bytes of an element in fp32


def math_attention(e: Emitter, plan: Plan, heads: Heads, *, causal: bool) -> None:
    """One attention sub-layer's kernels, between its projections and the output's."""
    both = plan.batch * heads.q
    area = both * heads.seq_q * heads.seq_kv
    share = pairs(heads.seq_q, heads.seq_kv, causal) / (heads.seq_q * heads.seq_kv)
    _lift(e, plan, heads)
    _product(e, "scores", heads.seq_q, heads.seq_kv, heads.dim, both, share)
    _softmax(e, plan, both * heads.seq_q, heads.seq_kv, area)
    _product(e, "weighted_values", heads.seq_q, heads.dim_v, heads.seq_kv, both, share)
    rows, out = both * heads.seq_q, both * heads.seq_q * heads.dim_v
    memory = partial(e.memory, direction=e.forward)
    memory("attention_cast", "cast", rows, heads.dim_v, WIDE * out, plan.width * out, wide=True)
    if not (plan.fused or plan.decode):
        memory("contiguous", "transpose", rows, heads.dim_v, plan.width * out, plan.width * out)
    if plan.train and e.keep:
        e.save((2 * WIDE + 1) * area + 2 * WIDE * both * heads.seq_kv * heads.dim)
        _backward(e, plan, heads, both, area, share)


def _lift(e: Emitter, plan: Plan, heads: Heads) -> None:
    """Queries and keys scaled in fp32, and values in fp32; keys, transposed, and values of every head where heads share them.

    One head of one sequence is left to the products to repeat.
    """
    sizes = (heads.q * heads.seq_q, heads.kv * heads.seq_kv, heads.q * heads.seq_kv)
    queries, few, keys = (plan.batch * n for n in sizes)
    size, small, large = queries * heads.dim, few * heads.dim, WIDE * keys * heads.dim
    memory = partial(e.memory, direction=e.forward)
    memory("lift_q", "cast", queries, heads.dim, plan.width * size, WIDE * size)
    if not plan.fused:
        memory("lift_q", "pointwise", queries, heads.dim, WIDE * size, WIDE * size, wide=True)
        memory("lift_kv", "cast", few, heads.dim, plan.width * small, WIDE * small, repeat=2)
        memory("lift_kv", "pointwise", few, heads.dim, WIDE * small, WIDE * small, wide=True)
        if same(heads.q, heads.kv) or (same(plan.batch, 1) and same(heads.kv, 1) and not plan.decode):
            return
    memory("lift_k", "transpose", keys, heads.dim, WIDE * small, large)
    memory(
        "lift_k_slow", "transpose", keys, heads.dim, 0, large * (_facts()["transposed_keys"]["factor"] - 1), kernels=0
    )
    memory("lift_v", "transpose", keys, heads.dim_v, WIDE * small, large)


def _softmax(e: Emitter, plan: Plan, rows: Number, cols: Number, area: Number) -> None:
    """The mask added, the softmax, and in eager code the search for rows that are masked whole; compiled one kernel."""
    whole, memory = WIDE * area, partial(e.memory, direction=e.forward)
    if plan.fused:
        memory("softmax", "softmax", rows, cols, whole, whole, special=area, wide=True)
        return
    make_additive(e, plan, plan.sequence, cols)
    memory("mask_add", "pointwise_strided", rows, cols, whole, whole, wide=True)
    memory("softmax", "softmax", rows, cols, whole, whole, special=area, wide=True)
    memory("masked_rows", "pointwise", rows, cols, whole, area, wide=True)
    memory("masked_rows", "reduce", rows, cols, area, rows)
    memory("masked_rows", "fill", 1, 1, 0, WIDE)
    memory("masked_rows", "pointwise_strided", rows, cols, whole, whole, wide=True)
    memory("weights_cast", "cast", rows, cols, whole, whole / 2, wide=True)


def _product(
    e: Emitter, name: str, m: Number, n: Number, k: Number, groups: Number, share: Number, direction: str = "",
    layout: Layout = Layout.INPUT_GRADIENT,
) -> None:  # fmt: skip
    """A batched product in fp32 over whole sequences, of which the model needs a `share`; of one row a stream."""
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


def _backward(e: Emitter, plan: Plan, heads: Heads, both: Number, area: Number, share: Number) -> None:
    """Gradients of values, weights, keys and queries, through the softmax and the choice of rows that are masked whole."""
    q, kv, d, dv = heads.seq_q, heads.seq_kv, heads.dim, heads.dim_v
    memory = partial(e.memory, direction="backward", wide=True)
    out = both * q * dv
    if not plan.fused:
        e.memory("attention_cast", "cast", both * q, dv, plan.width * out, WIDE * out, direction="backward")
    _product(e, "weighted_values", kv, dv, q, both, share, "backward")
    _product(e, "weighted_values", q, kv, dv, both, share, "backward")
    memory("softmax", "softmax_backward", both * q, kv, 2 * WIDE * area, WIDE * area)
    _product(e, "scores", d, kv, q, both, share, "backward")
    _product(e, "scores", q, d, kv, both, share, "backward")
    if not plan.fused:
        _lower(e, plan, heads, both)


def _lower(e: Emitter, plan: Plan, heads: Heads, both: Number) -> None:
    """Gradients of keys and values added up over the heads that share them, unscaled and cast back."""
    memory = partial(e.memory, direction="backward", wide=True)
    queries, keys = both * heads.seq_q, both * heads.seq_kv
    few = keys / heads.q * heads.kv
    size, small = queries * heads.dim, few * heads.dim
    if not same(heads.q, heads.kv):
        memory("lift_kv", "reduce.repeat_kv_backward", few, heads.dim, WIDE * keys * heads.dim, WIDE * small, repeat=2)
    memory("lift_kv", "pointwise", few, heads.dim, WIDE * small, WIDE * small)
    memory("lift_kv", "cast", few, heads.dim, WIDE * small, plan.width * small, repeat=2)
    memory("lift_q", "pointwise", queries, heads.dim, WIDE * size, WIDE * size)
    memory("lift_q", "cast", queries, heads.dim, WIDE * size, plan.width * size)


@cache
def _facts() -> dict[str, Any]:
    return packaged.toml("tilewise.server.operators", "math_attention.toml")
