"""Attention that a family's own code writes out: two products, and between them a softmax over every query-key pair.

transformers has no sdpa for these families (gpt-oss's sinks, BLOOM's and MPT's positions, GPT-J, GPT-Neo, CodeGen and XGLM).
"""

from __future__ import annotations

from msgspec.structs import replace

from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Layout
from tilewise.server.operators.attention_kernel import Heads, pairs, repeat_kv
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import operation
from tilewise.server.operators.numbers import Number, same
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import LIFT, OPERATIONS, SCORES

LIFTED = ("fp32", "fp32_where")  # queries and keys are lifted to fp32, whose products run without tensor cores


def written_attention(e: Emitter, plan: Plan, heads: Heads, scores: str, *, rotated: bool, split: bool) -> None:
    """One attention sub-layer's kernels, between its projections and the output's; scores: key of [scores] in sequences.toml.

    rotated: the gradients of queries and keys come back through a rotation, which brings them into order; split: q, k and v are slices of one product
    """
    queries, keys = heads.tokens * heads.q, plan.batch * heads.seq_kv * heads.q
    if not same(heads.q, heads.kv):
        repeat_kv(e, plan, replace(heads, kv_tokens=plan.batch * heads.seq_kv))
    if scores in LIFTED:
        operation(e, plan, "lift_q", LIFT, queries, heads.dim)
        operation(e, plan, "lift_k", LIFT, keys, heads.dim)
    precision = Precision.FP32 if scores in LIFTED else plan.plain
    _product(e, plan, heads, "scores", (heads.seq_q, heads.seq_kv, heads.dim), precision)
    operation(e, plan, "scores", SCORES[scores], queries, heads.seq_kv)
    _product(e, plan, heads, "weighted_values", (heads.seq_q, heads.dim_v, heads.seq_kv), plan.plain)
    if plan.decode and split:  # batches and heads of a slice of q, k and v do not follow one another
        e.launches("contiguous", OPERATIONS["contiguous"].forward, queries, heads.dim, plan.width, direction=e.forward)
    if not rotated:
        for name, rows in (("q_grad", queries), ("k_grad", keys)) if plan.train and e.keep else ():
            e.launches(name, OPERATIONS["contiguous"].forward, rows, heads.dim, plan.width, direction="backward")
    if scores == "weighed_sinks":
        operation(e, plan, "sinks", OPERATIONS["weighed_rows"], queries, heads.dim_v)
    if not plan.decode:  # one token lies in order already
        e.launches(
            "contiguous", OPERATIONS["contiguous"].forward, queries, heads.dim_v, plan.width, direction=e.forward
        )


def _product(
    e: Emitter, plan: Plan, heads: Heads, name: str, sizes: tuple[Number, Number, Number], precision: Precision
) -> None:
    """y[m,n] for every head, and in training the gradients of both factors."""
    m, n, k = sizes
    _row(e, plan, heads, name, sizes, precision, e.forward, Layout.INPUT_GRADIENT)
    if plan.train and e.keep:
        _row(e, plan, heads, name, (k, n, m), precision, "backward", Layout.WEIGHT_GRADIENT)
        _row(e, plan, heads, name, (m, k, n), precision, "backward", Layout.FORWARD)


def _row(
    e: Emitter, plan: Plan, heads: Heads, name: str, sizes: tuple[Number, Number, Number], precision: Precision,
    direction: str, layout: Layout,
) -> None:  # fmt: skip
    """Whole sequences are multiplied, of which the model needs the causal pairs."""
    m, n, k = sizes
    if same(m, 1):  # of one query a stream of the keys or values, as the library's own kernel for vectors
        groups, size = plan.batch * heads.q, 4 if precision == Precision.FP32 else plan.width
        read, written, work = size * groups * n * k, size * groups * n, 2.0 * groups * n * k
        e.memory(name, "reduce", groups * n, k, read, written, direction=direction, flops=work)
        return
    width = 4.0 if precision == Precision.FP32 else float(plan.width)
    needed = pairs(heads.seq_q, heads.seq_kv, True) / (heads.seq_q * heads.seq_kv)
    e.gemm(
        name, m, n, k, precision=precision, widths=(width,) * 3, layout=layout, direction=direction,
        groups=plan.batch * heads.q, needed=needed,
    )  # fmt: skip
