"""Sparse attention's indexer: few small heads score every key of their sequence, and the best are kept (G20)."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind
from tilewise.server.architecture.model import Attention, Indexer
from tilewise.server.operators.attention_kernel import Heads, compressed_pairs, pairs
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import norm, project
from tilewise.server.operators.numbers import Number, some
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import OPERATIONS, ROPES
from tilewise.server.operators.variants import Variant


def index(e: Emitter, plan: Plan, att: Attention, indexer: Indexer, heads: Heads, style: Variant) -> None:
    """The chosen keys of every query. A choice has no gradient: nothing of it is kept or runs backward."""
    with e.scope(part="indexer"):
        forward = replace(plan, train=False)
        for linear in indexer.projections:
            project(e, forward, (linear,), heads.tokens)
        for n in indexer.norms:
            norm(e, forward, n, heads.tokens, style)
        if plan.fused:
            _kernel(e, plan, att, indexer, heads)
        elif style.indexer_rope:
            _written(e, plan, att, indexer, heads, style)


def _kernel(e: Emitter, plan: Plan, att: Attention, indexer: Indexer, heads: Heads) -> None:
    """One product and a choice, as a kernel of their own would do it; of keys that stand for several tokens one each."""
    packed = some(att.compression)
    keys = heads.compressed if packed else heads.seq_kv
    if not some(keys):
        return
    causal = compressed_pairs(plan, att, heads.seq_q) if packed else pairs(heads.seq_q, keys, att.causal)
    scored = causal * plan.batch
    work, whole = (2.0 * each * indexer.heads * indexer.head_dim for each in (scored, heads.tokens * keys))
    read = (heads.tokens * indexer.heads + plan.batch * keys) * indexer.head_dim * plan.width
    e.add(
        "indexer_scores", e.forward, Kind.GEMM, m=heads.seq_q * indexer.heads, n=keys, k=indexer.head_dim,
        groups=plan.batch, precision=plan.plain, flops=work if e.keep else 0, executed_flops=whole, bytes_read=read,
        bytes_written=4 * scored, output_bytes=4,
    )  # fmt: skip
    e.memory(
        "indexer_topk", "topk", heads.tokens, keys, 4 * scored, 8 * heads.tokens * indexer.top_k,
        direction=e.forward,
    )  # fmt: skip


def _written(e: Emitter, plan: Plan, att: Attention, indexer: Indexer, heads: Heads, style: Variant) -> None:
    """DeepSeek V3.2's and GLM's own code: every head's scores in fp32, weighed and added up, and a mask made of the choice."""
    launches = partial(e.launches, width=plan.width, direction=e.forward)
    queries, keys, dim = heads.tokens * indexer.heads, plan.batch * heads.seq_kv, indexer.head_dim
    for name, rows in (("index_q", queries), ("index_k", heads.tokens)):
        launches(name, ROPES[style.indexer_rope].forward, rows, att.rope_dim)
        launches(name, OPERATIONS["rope_join"].forward, rows, dim)
    if plan.decode and plan.workload.cache != "none":
        size = keys * dim * plan.width
        e.memory("index_append", "copy", keys, dim, size, size)
    for name, rows in (("index_q", queries), ("index_k", keys)):
        launches(name, OPERATIONS["lift"].forward, rows, dim)
    _product(e, plan, att, heads, "index_scores", (indexer.heads, heads.seq_kv, dim))
    launches("index_scores", OPERATIONS["index_scores"].forward, queries, heads.seq_kv)
    launches("index_weights", OPERATIONS["index_weights"].forward, heads.tokens, indexer.heads)
    _product(e, plan, att, heads, "index_sum", (1, heads.seq_kv, indexer.heads))
    launches("index_mask", OPERATIONS["index_masked"].forward, heads.tokens, heads.seq_kv)
    chosen = heads.tokens * indexer.top_k
    read = 4 * heads.tokens * heads.seq_kv
    e.memory(
        "index_topk", "topk", heads.tokens, heads.seq_kv, read, 12 * chosen, direction=e.forward, kernels=2, wide=True
    )
    launches("index_chosen", OPERATIONS["index_chosen"].forward, heads.tokens, indexer.top_k)
    launches("index_mask", OPERATIONS["index_mask"].forward, heads.tokens, heads.seq_kv)


def _product(
    e: Emitter, plan: Plan, att: Attention, heads: Heads, name: str, sizes: tuple[Number, Number, Number]
) -> None:
    """y[m,n] of every token, over all keys, of which the model needs those before it."""
    needed = pairs(heads.seq_q, heads.seq_kv, att.causal) / (heads.seq_q * heads.seq_kv)
    e.gemm(
        name, *sizes, precision=Precision.FP32, widths=(4.0, 4.0, 4.0), direction=e.forward, groups=heads.tokens,
        needed=needed,
    )  # fmt: skip
