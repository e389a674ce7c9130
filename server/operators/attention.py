"""Softmax attention: projections, rotary embedding, the attention kernel, and its shapes under tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewise.hwdb.precision import FORMATS
from tilewise.hwdb.table import Phase
from tilewise.server.architecture.model import Attention, Latent, Linear, Split
from tilewise.server.operators.emitter import Emitter, Number
from tilewise.server.operators.linear import accumulate, norm, operation, project
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import CONTIGUOUS, ROPE, ROPE_FP32, ROPE_JOIN, ROPE_JOIN_NOTHING
from tilewise.server.operators.variants import Variant


@dataclass(frozen=True, slots=True)
class Heads:
    """One rank's heads; `tokens` and `kv_tokens` are the rows of the query and of the key projections."""

    q: Number
    kv: Number
    dim: Number
    dim_v: Number
    tokens: Number
    kv_tokens: Number
    seq_q: Number
    seq_kv: Number


def pairs(seq_q: Number, seq_kv: Number, causal: bool, window: Number = 0, chunk: Number = 0) -> Number:
    """Query-key pairs that attention has to score: the causal part only, at most `window` keys a query, within chunks.

    The last query sees every key: query i of seq_q sees seq_kv - seq_q + i + 1 of them.
    """
    reach: Number = np.where(np.asarray(window) > 0, np.minimum(window, seq_kv), seq_kv)[()]
    if np.any(np.asarray(chunk) > 0):
        return _chunked(seq_q, seq_kv, np.where(np.asarray(chunk) > 0, chunk, seq_kv)[()])
    if not causal:
        return seq_q * reach
    offset = seq_kv - seq_q
    ramp: Number = np.clip(reach - 1 - offset, 0, seq_q)[()]  # queries that see less than their reach
    return ramp * offset + ramp * (ramp + 1) / 2 + (seq_q - ramp) * reach


def _chunked(seq_q: Number, seq_kv: Number, chunk: Number) -> Number:
    def upto(n: Number) -> Number:
        full, rest = n // chunk, n % chunk
        return full * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2

    return upto(seq_kv) - upto(seq_kv - seq_q)


def attend(
    e: Emitter,
    plan: Plan,
    att: Attention,
    variant: Variant,
    tokens: Number,
    source: Number,
    *,
    input_saved: bool = False,
) -> None:
    """One attention sub-layer on `tokens` rows; `source` is the key length of cross-attention (0: self-attention)."""
    heads = _heads(plan, att, tokens, source)
    with e.scope(part="attention"):
        if att.indexer is not None:
            _index(e, plan, att, heads, variant)
        _project_inputs(e, plan, att, variant, heads, input_saved)
        joined = _rotate(e, plan, att, variant, heads)
        if plan.decode and not att.cross:
            _append_cache(e, plan, att, heads)
        if plan.decode and att.latent is not None:
            _absorbed(e, plan, att, att.latent, heads)
        else:
            _kernel(e, plan, att, heads)
        out = att.projections[-1]
        width = heads.q * heads.dim_v
        if joined and not plan.fused:  # q lies head by head after the concatenation, and the output with it
            e.launches("contiguous", CONTIGUOUS, tokens, width, plan.width, direction=e.forward)
        project(e, plan, (out,), tokens, save_input=joined and not plan.fused)


def _heads(plan: Plan, att: Attention, tokens: Number, source: Number) -> Heads:
    kv = np.maximum(att.kv_heads // plan.tp, 1)[()] if plan.tp > 1 else att.kv_heads
    batch = plan.batch
    seq_q = tokens // batch
    seq_kv = source if att.cross else (plan.context if plan.decode else seq_q)
    return Heads(
        q=att.heads // plan.tp,
        kv=kv,
        dim=att.head_dim,
        dim_v=att.head_dim_v,
        tokens=tokens,
        kv_tokens=source * batch if att.cross else tokens,
        seq_q=seq_q,
        seq_kv=seq_kv,
    )


def _project_inputs(e: Emitter, plan: Plan, att: Attention, variant: Variant, heads: Heads, input_saved: bool) -> None:
    inputs = att.projections[:-1]
    keep = not input_saved and not plan.selective
    if att.latent is not None:
        _project_latent(e, plan, att, att.latent, inputs, heads, variant)
    elif att.cross and len(inputs) == 3:
        project(e, plan, inputs[:1], heads.tokens, save_input=keep)
        if not plan.decode:  # the encoder's keys and values stay cached
            project(e, plan, inputs[1:], heads.kv_tokens, outputs=_outputs(plan, att, inputs[1:]), save_input=keep)
    elif len(inputs) in (1, 3) and not att.compression:
        project(e, plan, inputs, heads.tokens, outputs=_outputs(plan, att, inputs), save_input=keep)
        _regroup(e, plan, att, variant, heads, len(inputs) == 1)
    else:  # a chain of low-rank projections
        for linear in inputs:
            project(e, plan, (linear,), heads.tokens, save_input=keep)
    if att.latent is None:
        for n in att.norms:
            norm(e, plan, n, heads.tokens, variant)


def _outputs(plan: Plan, att: Attention, inputs: tuple[Linear, ...]) -> list[Number | None]:
    """Local output widths; with more ranks than kv heads each rank still holds one whole key and value head."""
    if plan.tp == 1 or np.all(np.asarray(att.kv_heads) % plan.tp == 0):
        return [None] * len(inputs)
    extra = np.maximum(att.kv_heads // plan.tp, 1)[()]
    if len(inputs) == 1:
        return [att.heads // plan.tp * att.head_dim + extra * (att.head_dim + att.head_dim_v)]
    return [extra * att.head_dim if linear.name[0] in "kv" else None for linear in inputs]


def _regroup(e: Emitter, plan: Plan, att: Attention, variant: Variant, heads: Heads, wide: bool) -> None:
    """Backward copies that bring the gradients of q, k, v back into the layout of their matrices."""
    if not (plan.train and e.keep):
        return
    style = variant.fused_qkv if wide else ""
    if style in ("slice", "chunk") and np.any(np.asarray(att.rope_dim) > 0):
        e.save(heads.tokens * (heads.q + heads.kv) * heads.dim * plan.width)  # v is a view of the whole product
    if plan.fused:
        return
    q, kv = heads.q * heads.dim, heads.kv * heads.dim
    whole = q + kv + heads.kv * heads.dim_v
    size = heads.tokens * whole * plan.width
    if style in ("", "slice") and np.any(np.asarray(att.rope_dim) > 0):
        for name, cols in (("q_grad", q), ("k_grad", kv)):
            e.launches(name, CONTIGUOUS, heads.tokens, cols, plan.width, direction="backward")
    if style == "slice":
        e.memory("qkv_grad", "fill", heads.tokens, whole, 0, size, direction="backward", repeat=3)
        e.memory("qkv_grad", "transpose", heads.tokens, whole / 3, size / 3, size / 3, direction="backward", repeat=3)
        accumulate(e, plan, heads.tokens, whole, 2, "qkv_grad")
    if style in ("chunk", "split"):
        e.memory("qkv_grad", "cat", heads.tokens, whole, size, size, direction="backward")
    if style == "chunk":
        e.launches("qkv_grad", CONTIGUOUS, heads.tokens, whole, plan.width, direction="backward")
    if style == "index":
        _index_backward(e, plan, heads, kv, whole, size)


def _index_backward(e: Emitter, plan: Plan, heads: Heads, kv: Number, whole: Number, size: Number) -> None:
    """Falcon gathers its keys and values by index: both gradients are sorted back into the product's."""
    part = heads.tokens * kv * plan.width
    e.memory("qkv_split", "gather", heads.tokens, kv, part, part, repeat=2)
    e.memory("qkv_grad", "fill", heads.tokens, whole, 0, size, direction="backward", repeat=3)
    e.memory("qkv_grad", "scatter_add", heads.tokens, kv, part, part, direction="backward", kernels=7, repeat=2)
    e.memory("qkv_grad", "transpose", heads.tokens, whole - 2 * kv, size - 2 * part, size, direction="backward")
    accumulate(e, plan, heads.tokens, whole, 2, "qkv_grad")


def _rotate(e: Emitter, plan: Plan, att: Attention, variant: Variant, heads: Heads) -> bool:
    """Rotary embedding of q and k; whether the heads were concatenated from a rotated and an untouched part."""
    if not np.any(np.asarray(att.rope_dim) > 0):
        return False
    whole = bool(np.all(np.asarray(att.rope_dim) == att.head_dim))
    partial = variant.joins_rope or not whole
    rope, join = ROPE_FP32 if variant.rope_fp32 else ROPE, ROPE_JOIN_NOTHING if whole else ROPE_JOIN
    if variant.repeats_angles and not plan.fused:
        table = plan.sequence * att.rope_dim * plan.width
        e.memory("rope_angles", "transpose", plan.sequence, att.rope_dim, table, table, direction=e.forward, repeat=2)
    shared = att.latent is not None  # one rotated key for all heads
    for name, count, rows in (
        ("rope_q", heads.q, heads.tokens),
        ("rope_k", 1 if shared else heads.kv, heads.kv_tokens),
    ):
        operation(e, plan, name, rope[plan.fused], rows * count, att.rope_dim)
        if partial and not plan.fused:
            operation(e, plan, name, join, rows * (heads.q if shared else count), heads.dim)
    return partial


def _append_cache(e: Emitter, plan: Plan, att: Attention, heads: Heads) -> None:
    """The new key and value join the cache: eager transformers concatenates (and so copies) all of it."""
    width = cache_width(att, heads.kv)
    if plan.fused:
        size = heads.tokens * width * plan.width
        e.memory("kv_append", "copy", heads.tokens, width, size, size)
        return
    size = plan.batch * heads.seq_kv * width * plan.width
    e.memory("kv_append", "cat", plan.batch * heads.seq_kv, width / 2, size / 2, size / 2, repeat=2)


def cache_width(att: Attention, kv_heads: Number) -> Number:
    """Cached elements of one token in one layer: keys and values, or MLA's latent with its rotated key."""
    if att.latent is not None:
        return att.latent.kv_rank + att.latent.rope_dim
    return kv_heads * (att.head_dim + att.head_dim_v)


def _kernel(e: Emitter, plan: Plan, att: Attention, heads: Heads) -> None:
    """The attention kernel; eager transformers passes a mask where a window or chunk applies, and computes it all."""
    bounded = np.any(np.asarray(att.window) > 0) or np.any(np.asarray(att.chunk) > 0)
    span = att.window if np.any(np.asarray(att.window) > 0) else att.chunk
    masked = bool(not plan.fused and bounded and not plan.decode and np.any(heads.seq_kv >= np.asarray(span)))
    grouped = not np.all(np.asarray(att.heads) == att.kv_heads)
    kv_heads = heads.kv
    if masked and grouped and not plan.decode:
        _repeat_kv(e, plan, heads)
        kv_heads = heads.q
    scored = pairs(heads.seq_q, heads.seq_kv, att.causal and not att.cross, att.window, att.chunk)
    computed = heads.seq_q * heads.seq_kv if masked else scored
    shape: dict[str, Number] = {
        "batch": plan.batch, "heads": heads.q, "kv_heads": kv_heads, "head_dim": heads.dim, "head_dim_v": heads.dim_v,
        "seq_q": heads.seq_q, "seq_kv": heads.seq_kv,
        "causal": int(att.causal and not att.cross and not masked and not plan.decode),
        "window": 0 if masked else np.where(np.asarray(att.window) > 0, att.window, att.chunk)[()],
        "precision": plan.plain,
    }  # fmt: skip
    _emit_kernel(e, plan, heads, kv_heads, scored, computed, shape)


def _emit_kernel(
    e: Emitter, plan: Plan, heads: Heads, kv_heads: Number, scored: Number, computed: Number, shape: dict[str, Number]
) -> None:
    queries = plan.batch * heads.q
    q_bytes = plan.batch * heads.seq_q * heads.q * plan.width
    visible = np.minimum(heads.seq_kv, np.where(shape["window"], shape["window"], heads.seq_kv))[()]
    kept = visible if plan.decode else heads.seq_kv
    kv_bytes = plan.batch * kept * kv_heads * (heads.dim + heads.dim_v) * plan.width
    work = 2.0 * queries * (heads.dim + heads.dim_v)
    statistics = 4 * plan.batch * heads.seq_q * heads.q
    phase = Phase.DECODE if plan.decode else Phase.FORWARD
    e.attention(
        "attention", phase, direction=e.forward, flops=work * scored if e.keep else 0, executed_flops=work * computed,
        bytes_read=q_bytes * heads.dim + kv_bytes, bytes_written=q_bytes * heads.dim_v + (statistics if plan.train else 0),
        special=queries * computed, kernels=1 if plan.decode else 2, **shape,
    )  # fmt: skip
    if not (plan.train and e.keep):
        return
    e.save(q_bytes * (heads.dim + heads.dim_v) + kv_bytes + statistics)
    again = 2.0 * queries * heads.dim  # the scores are computed once more
    read = q_bytes * (heads.dim + 2 * heads.dim_v) + kv_bytes + statistics
    e.attention(
        "attention", Phase.BACKWARD, direction="backward", flops=2 * work * scored,
        executed_flops=(2 * work + again) * computed, bytes_read=read, bytes_written=q_bytes * heads.dim + kv_bytes,
        special=queries * computed, kernels=np.where(np.asarray(heads.q) > kv_heads, 6, 4)[()], **shape,
    )  # fmt: skip


def _repeat_kv(e: Emitter, plan: Plan, heads: Heads) -> None:
    """Keys and values copied to every query head: what sdpa needs once a mask is given."""
    rows, cols = heads.kv_tokens, heads.q * heads.dim
    small, large = rows * heads.kv * heads.dim * plan.width, rows * cols * plan.width
    e.memory("repeat_kv", "transpose", rows, cols, small, large, direction=e.forward, repeat=2)
    if plan.train and e.keep:
        e.memory("repeat_kv", "reduce", rows, cols, large, small, direction="backward", repeat=2)


def _project_latent(
    e: Emitter, plan: Plan, att: Attention, latent: Latent, inputs: tuple[Linear, ...], heads: Heads, variant: Variant
) -> None:
    """MLA: down-projections share the input; up-projections follow their norms. Decode absorbs the kv up-projection."""
    down = [linear for linear in inputs if linear.split == Split.NONE]
    up = [linear for linear in inputs if linear.split != Split.NONE]
    direct = [linear for linear in up if not np.any(np.asarray(latent.q_rank) > 0) and linear.name.startswith("q")]
    project(e, plan, [*direct, *down], heads.tokens, save_input=not plan.selective)
    for n in att.norms:
        norm(e, plan, n, heads.tokens, variant)
    for linear in up:
        if linear in direct or (plan.decode and linear.name.startswith("kv")):
            continue
        project(e, plan, (linear,), heads.tokens, save_input=not plan.selective)
    if not plan.fused and not plan.decode:
        cols = heads.q * heads.dim
        size = heads.tokens * cols * plan.width
        e.memory("join_heads", "cat", heads.tokens, cols, size, size, direction=e.forward)


def _absorbed(e: Emitter, plan: Plan, att: Attention, latent: Latent, heads: Heads) -> None:
    """Decode over the latent cache: queries are taken into the latent space and the result back, head by head."""
    widths = (plan.inner, plan.weight, float(plan.width))
    common = {"precision": plan.linear, "widths": widths, "groups": heads.q}
    e.gemm("absorb_q", heads.tokens, latent.kv_rank, latent.nope_dim, **common)  # type: ignore[arg-type]
    wide = latent.kv_rank + latent.rope_dim
    queries = plan.batch * heads.q
    work = 2.0 * queries * heads.seq_q * heads.seq_kv * (wide + latent.kv_rank)
    element = plan.width
    e.attention(
        "attention", Phase.DECODE, batch=plan.batch, heads=heads.q, kv_heads=1, head_dim=wide, head_dim_v=latent.kv_rank,
        seq_q=heads.seq_q, seq_kv=heads.seq_kv, precision=plan.plain, flops=work, executed_flops=work,
        bytes_read=element * (queries * wide + plan.batch * heads.seq_kv * wide),
        bytes_written=element * queries * latent.kv_rank, special=queries * heads.seq_kv,
    )  # fmt: skip
    e.gemm("absorb_v", heads.tokens, att.head_dim_v, latent.kv_rank, **common)  # type: ignore[arg-type]


def _index(e: Emitter, plan: Plan, att: Attention, heads: Heads, variant: Variant) -> None:
    """Sparse-attention indexer: its own small heads score every key (fp8 in production, counted as 2 FLOPs a product)."""
    assert att.indexer is not None
    indexer = att.indexer
    with e.scope(part="indexer"):
        for linear in indexer.projections:
            project(e, plan, (linear,), heads.tokens, save_input=False)
        for n in indexer.norms:
            norm(e, plan, n, heads.tokens, variant)
        scored = pairs(heads.seq_q, heads.seq_kv, att.causal) * plan.batch
        work = 2.0 * scored * indexer.heads * indexer.head_dim
        size = FORMATS[plan.plain].bytes
        read = (
            heads.tokens * indexer.heads * indexer.head_dim * size + plan.batch * heads.seq_kv * indexer.head_dim * size
        )
        e.add(
            "indexer_scores", e.forward, 0, m=heads.tokens * indexer.heads, n=heads.seq_kv, k=indexer.head_dim,
            precision=plan.plain, flops=work if e.keep else 0, executed_flops=work, bytes_read=read,
            bytes_written=4 * scored, output_bytes=4,
        )  # fmt: skip
        e.memory("indexer_topk", "topk", heads.tokens, heads.seq_kv, 4 * scored, 8 * heads.tokens * indexer.top_k)
