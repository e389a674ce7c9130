"""Softmax attention as a sub-layer: projections, q/k norms, rotary embedding, cache, kernel, output."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from msgspec.structs import replace

from tilewise.hwdb import packaged
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture.model import Attention, Latent, Linear, Split
from tilewise.server.operators import sms
from tilewise.server.operators.attention_kernel import Heads, kernel, reach, repeat_kv
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.indexer import index
from tilewise.server.operators.linear import accumulate, joined, norm, operation, project, shard
from tilewise.server.operators.math_attention import math_attention
from tilewise.server.operators.numbers import Number, choose, local, same, smaller, some
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import FUSED, OPERATIONS, ROPES
from tilewise.server.operators.variants import Variant
from tilewise.server.operators.written_attention import written_attention


def attend(
    e: Emitter,
    plan: Plan,
    att: Attention,
    style: Variant,
    tokens: Number,
    source: Number,
    *,
    input_saved: bool = False,
) -> None:
    """One attention sub-layer on `tokens` rows; `source` is the key length of cross-attention."""
    heads = heads_of(plan, att, style, tokens, source)
    if plan.workload.attention_backend != "auto" and plan.stack.masks and (style.scores or att.sinks):
        raise _no_backend(plan, att)
    with e.scope(part="attention"):
        if att.indexer is not None and not att.indexer.shared:
            index(e, plan, att, att.indexer, heads, style)
        _project_inputs(e, plan, att, style, heads, input_saved)
        if style.spreads_kv and not plan.fused and some(heads.kv - 1) and not same(heads.q, heads.kv):
            repeat_kv(e, plan, heads)
            heads = replace(heads, kv=heads.q)
        joined = _rotate(e, plan, att, style, heads)
        if style.scales_q and not plan.fused:
            operation(e, plan, "scale_q", OPERATIONS["scale"], heads.tokens * heads.q, heads.dim)
        if style.scales_queries and not plan.fused and (some(att.rope_dim) != style.norms_rotated):
            operation(e, plan, "scale_q", OPERATIONS[style.scales_queries], heads.tokens * heads.q, heads.dim)
        if plan.decode and not (att.cross or att.shares_kv):
            _append_cache(e, plan, att, style, heads)
        if plan.workload.attention_backend == "math" or (style.broadcasts_kv and same(heads.kv, 1)):
            math_attention(e, plan, heads, causal=att.causal)
        elif style.scores and not plan.fused:
            written_attention(
                e,
                plan,
                heads,
                style.scores,
                rotated=some(att.rope_dim),
                kept=style.keeps_fp32,
                split=style.fused_qkv == "split",
            )
        else:
            for _ in range(att.passes):
                kernel(e, plan, att, heads, masks=style.masks, biased=bool(style.relative))
        copied = joined and not (plan.fused or plan.decode)
        if copied:  # q lies head by head after the concatenation, and the output with it
            e.launches(
                "contiguous",
                OPERATIONS["contiguous"].forward,
                tokens * heads.q,
                heads.dim_v,
                plan.width,
                direction=e.forward,
            )
        _gate(e, plan, att, heads)
        project(e, plan, att.projections[-1:], tokens, save_input=copied)


def _no_backend(plan: Plan, att: Attention) -> InvalidInput:
    why = "attends to learned sinks, for which sdpa has no kernel" if att.sinks else "adds its positions to the scores"
    message = f"attention_backend {plan.workload.attention_backend!r} is a kernel of sdpa, and this model {why}: transformers writes it out; only auto is allowed"
    return InvalidInput(message, reason="INVALID_WORKLOAD", field="workload.attention_backend", valid="auto")


def _gate(e: Emitter, plan: Plan, att: Attention, heads: Heads) -> None:
    """The output weighed by what a projection of its own says, one value an element or a head."""
    gates = [linear for linear in att.projections if linear.name == "gate_proj"]
    if gates and not plan.fused:
        each = "_head" if same(gates[0].outputs, att.heads) else ""
        rows, cols = (heads.tokens * heads.q, heads.dim_v) if each else (heads.tokens, heads.q * heads.dim_v)
        operation(e, plan, "gate", OPERATIONS["attention_gate" + each], rows, cols)


def heads_of(plan: Plan, att: Attention, style: Variant, tokens: Number, source: Number) -> Heads:
    """One rank's heads over `tokens` rows; `source` is the key length of cross-attention."""
    seq_q = tokens // plan.batch
    own = source if att.cross else (_cached(plan, att, style) if plan.decode else seq_q)
    compressed = (plan.context if plan.decode else seq_q) // att.compression if some(att.compression) else 0
    return Heads(
        q=att.heads // plan.tp,
        kv=local(att.kv_heads, plan.tp),
        dim=att.head_dim,
        dim_v=att.head_dim_v,
        tokens=tokens,
        kv_tokens=source * plan.batch if att.cross else tokens,
        seq_q=seq_q,
        seq_kv=own + compressed,
        compressed=compressed,
    )


def _cached(plan: Plan, att: Attention, style: Variant) -> Number:
    """Keys that a new token meets. Transformers' caches keep no more than a window or chunk (DynamicSlidingWindowLayer and its static twin)."""
    if not (plan.stack.masks or some(att.compression)) or style.windows_in_scores:
        return plan.context
    span = reach(att)
    return choose(span > 0, smaller(span, plan.context), plan.context)


def _project_inputs(e: Emitter, plan: Plan, att: Attention, style: Variant, heads: Heads, input_saved: bool) -> None:
    inputs = att.projections[:-1]
    keep = not input_saved and not plan.selective
    if att.latent is not None:
        project_latent(e, plan, att, att.latent, inputs, heads, style)
        return
    if att.cross and len(inputs) == 3:
        project(e, plan, inputs[:1], heads.tokens, save_input=keep)
        if not plan.decode:  # the encoder's keys and values stay cached
            project(e, plan, inputs[1:], heads.kv_tokens, outputs=outputs(plan, att, inputs[1:]), save_input=keep)
            accumulate(
                e, plan, heads.kv_tokens, inputs[1].inputs
            )  # what the layer makes of the encoder's output and the others do
    elif att.shares_kv:
        project(e, plan, inputs, heads.tokens, save_input=keep)
    elif plan.stack.joins and len(inputs) == 3 and not some(att.compression):
        _project_joined(e, plan, att, inputs, heads, keep)
    elif len(inputs) in (1, 3, 4) and not some(att.compression):  # with a gate: 4
        project(e, plan, inputs, heads.tokens, outputs=outputs(plan, att, inputs), save_input=keep)
        _regroup(e, plan, att, style.fused_qkv if len(inputs) == 1 else "", heads)
    else:  # a chain of low-rank projections
        for linear in inputs:
            project(e, plan, (linear,), heads.tokens, save_input=keep)
    for n in att.norms if some(att.rope_dim) or not style.norms_rotated else ():
        norm(e, plan, n, heads.tokens, style, heads=local(n.heads, plan.tp), joined=some(att.rope_dim))


def _project_joined(
    e: Emitter, plan: Plan, att: Attention, inputs: tuple[Linear, ...], heads: Heads, keep: bool
) -> None:
    """One product for q, k and v; v stays a view of it, and the gradients are concatenated for its backward."""
    shares = zip(inputs, outputs(plan, att, inputs), strict=True)
    whole = sum(shard(linear, plan.tp)[1] if width is None else width for linear, width in shares)
    project(e, plan, (joined("qkv_proj", inputs),), heads.tokens, outputs=[whole], save_input=keep)
    if plan.train and e.keep:
        size = heads.tokens * whole * plan.width
        e.save(size - heads.tokens * heads.kv * heads.dim_v * plan.width)
        e.memory("qkv_grad", "cat", heads.tokens, whole, size, size, direction="backward")


def outputs(plan: Plan, att: Attention, inputs: tuple[Linear, ...]) -> list[Number | None]:
    """Local output widths; with more ranks than kv heads each rank still holds one whole key and value head."""
    if plan.tp == 1 or same(att.kv_heads % plan.tp, 0):
        return [None] * len(inputs)
    kv = local(att.kv_heads, plan.tp)
    if len(inputs) == 1:
        return [att.heads // plan.tp * att.head_dim + kv * (att.head_dim + att.head_dim_v)]
    return [kv * att.head_dim if linear.name[0] in "kv" else None for linear in inputs]


def _regroup(e: Emitter, plan: Plan, att: Attention, fused: str, heads: Heads) -> None:
    """Backward copies that bring the gradients of q, k, v into the layout of their matrix (`fused`: see Variant)."""
    if fused == "index" and not plan.fused:
        part = heads.tokens * heads.kv * heads.dim * plan.width
        e.memory("qkv_split", "gather", heads.tokens, heads.kv * heads.dim, part, part, direction=e.forward, repeat=2)
    if fused == "parts" and not plan.fused:
        e.launches(
            "qkv_split",
            OPERATIONS["contiguous"].forward,
            heads.tokens * heads.q,
            heads.dim,
            plan.width,
            direction=e.forward,
            repeat=3,
        )
    if not (plan.train and e.keep):
        return
    q, kv = heads.q * heads.dim, heads.kv * heads.dim
    if fused in ("slice", "chunk") and some(att.rope_dim):
        e.save(heads.tokens * (q + kv) * plan.width)  # v is a view of the whole product
    if plan.fused:
        _regroup_fused(e, plan, att, fused, heads.tokens, q + kv + heads.kv * heads.dim_v)
        return
    if fused in ("", "slice") and some(att.rope_dim):
        for name, count in (("q_grad", heads.q), ("k_grad", heads.kv)):
            e.launches(
                name,
                OPERATIONS["contiguous"].forward,
                heads.tokens * count,
                heads.dim,
                plan.width,
                direction="backward",
            )
    whole = q + kv + heads.kv * heads.dim_v
    size = heads.tokens * whole * plan.width
    if fused == "slice":
        e.memory("qkv_grad", "fill", heads.tokens, whole, 0, size, direction="backward", repeat=3)
        third = size / 3
        rows = heads.tokens * whole / heads.dim / 3
        e.memory("qkv_grad", "transpose", rows, heads.dim, third, third, direction="backward", repeat=3)
        accumulate(e, plan, heads.tokens, whole, 2, "qkv_grad")
    if fused == "parts":
        e.launches(
            "v_grad",
            OPERATIONS["contiguous"].forward,
            heads.tokens * heads.kv,
            heads.dim_v,
            plan.width,
            direction="backward",
        )
    if fused in ("chunk", "split", "parts"):
        interleaved = fused == "chunk"  # head by head, which costs a copy more
        rows, cols = (heads.tokens * heads.q, whole / heads.q) if interleaved else (heads.tokens, whole)
        e.memory("qkv_grad", "rope.cat" if interleaved else "cat", rows, cols, size, size, direction="backward")
        if interleaved:
            e.launches("qkv_grad", OPERATIONS["contiguous"].forward, rows, cols, plan.width, direction="backward")
    if fused == "index":
        _index_backward(e, plan, heads, kv, whole)


def _regroup_fused(e: Emitter, plan: Plan, att: Attention, fused: str, tokens: Number, whole: Number) -> None:
    """Inductor concatenates the gradients where no rotation does it in passing.

    What was gathered is added to zeros, one buffer for keys and one for values, and both to the queries' part.
    """
    size = tokens * whole * plan.width
    memory = partial(e.memory, "qkv_grad", direction="backward")
    if fused == "index":
        memory("fill", tokens, whole, 0, size, repeat=2)
        memory("add", tokens, whole, 3 * size, size)
    elif fused and not some(att.rope_dim):
        memory("copy", tokens, whole, size, size)


def _index_backward(e: Emitter, plan: Plan, heads: Heads, kv: Number, whole: Number) -> None:
    """Falcon gathers its keys and values by index: both gradients are sorted back into the product's."""
    part, size = heads.tokens * kv * plan.width, heads.tokens * whole * plan.width
    e.memory("qkv_grad", "fill", heads.tokens, whole, 0, size, direction="backward", repeat=3)
    e.memory("qkv_grad", "scatter_add", heads.tokens, kv, part, part, direction="backward", kernels=7, repeat=2)
    e.memory("qkv_grad", "transpose", heads.tokens * heads.q, heads.dim, size - 2 * part, size, direction="backward")
    accumulate(e, plan, heads.tokens, whole, 2, "qkv_grad")


def _rotate(e: Emitter, plan: Plan, att: Attention, style: Variant, heads: Heads) -> bool:
    """Rotary embedding of q and k; whether the heads were concatenated from a rotated and an untouched part."""
    if not some(att.rope_dim):
        return False
    whole = same(att.rope_dim, att.head_dim)
    rope, join = (
        FUSED["rope"] if plan.fused else ROPES[style.rope],
        OPERATIONS["rope_join_nothing" if whole else "rope_join_fp32" if style.keeps_fp32 else "rope_join"],
    )
    if plan.complex_rotation:
        rope = OPERATIONS["rope_complex"]
    if (style.repeats_angles or style.sinusoids) and not plan.fused:
        table, times = plan.sequence * att.rope_dim * (style.repeats_angles or plan.width), style.sinusoids or 2
        e.memory(
            "rope_angles", "transpose", plan.sequence, att.rope_dim, table, table, direction=e.forward, repeat=times
        )
    joins = style.joins_rope or not whole
    shared = att.latent is not None  # one rotated key for all heads
    k_heads = 1 if shared else heads.kv
    rotated = [("rope_q", heads.q, heads.tokens), ("rope_k", k_heads, heads.kv_tokens)]
    paired = bool(style.repeats_angles) or style.rope in PAIRED
    if plan.whole and plan.stack.masks and not (plan.decode or paired or shared or same(heads.q, heads.kv)):
        rotated = rotated[:1]  # inductor rotates keys as it copies them to their query heads
    for name, count, rows in rotated[:1] if att.shares_kv else rotated:
        operation(e, plan, name, rope, rows * count, att.rope_dim)
        if joins and not plan.fused and not shared:
            operation(e, plan, name, join, rows * count, heads.dim)
    if plan.whole and plan.stack.masks and not plan.decode:
        _work_angles_out(e, plan, att, heads, paired)
    return joins


def _work_angles_out(e: Emitter, plan: Plan, att: Attention, heads: Heads, paired: bool) -> None:
    """Inductor's cosines and sines, again for every element it rotates.

    Halves are rotated forward where keys have been copied to each query head; neighbours are put together again before that, with the
    rest of the head.
    """
    way, each = "paired" if paired else "halves", sms.facts()["rope"]
    width = att.rope_dim if att.latent is not None or not paired else heads.dim
    query = heads.tokens * heads.q * width
    key = 0 if att.shares_kv else heads.kv_tokens * width * (1 if att.latent is not None else heads.kv)
    spread = query if not (paired or att.shares_kv or att.latent is not None) else key
    sms.spend(e, "rope_angles", sms.PICO * each[way] * (query + spread), e.forward)
    if plan.train and e.keep:
        sms.spend(e, "rope_angles", sms.PICO * each[f"{way}_backward"] * (query + key), "backward")


PAIRED = ("factors_lifted", "interleaved", "lifted", "pairs_fp32")  # rotations of neighbours instead of halves


def _append_cache(e: Emitter, plan: Plan, att: Attention, style: Variant, heads: Heads) -> None:
    """The new key and value join the cache. Eager transformers (DynamicCache) concatenates, and so copies, all of it.

    torch.cat takes a slow way, element by element, where the new piece is a slice of a larger product: values out of one
    matrix for q, k and v, and keys that no rotation has made anew (cache.toml).
    """
    if plan.workload.cache == "none":
        return
    each = style.spreads_kv or (att.latent is not None and att.latent.caches_whole)
    width = heads.kv * (heads.dim + heads.dim_v) if each else cache_width(att, heads.kv)
    if plan.fused:
        size = heads.tokens * width * plan.width
        e.memory("kv_append", "copy", heads.tokens, width, size, size)
        if plan.stack.masks and plan.decode:  # a static cache counts its tokens on the GPU
            e.memory("kv_count", "pointwise", 1, 1, 8, 8)
        _roll_window(e, plan, att, heads, width)
        return
    half = plan.batch * heads.seq_kv * width * plan.width / 2
    sliced = len(att.projections) == 2 and style.fused_qkv != "index"
    for strided in (sliced and not some(att.rope_dim), sliced):
        e.memory("kv_append", "cat" if strided else "copy", plan.batch * heads.seq_kv, width / 2, half, half)
        if strided:
            slow = half * (_cache_facts()["strided_cat"]["factor"] - 1)
            e.memory("kv_append_slow", "cat", plan.batch * heads.seq_kv, width / 2, slow, slow, kernels=0)


def _roll_window(e: Emitter, plan: Plan, att: Attention, heads: Heads, width: Number) -> None:
    """A full static cache of a window is rolled by one token into a copy, and the copy written back: keys, and values."""
    span = reach(att)
    if plan.stack.masks and some(span) and some(plan.context - span + 1):
        half = plan.batch * heads.seq_kv * width * plan.width / 2
        e.memory("kv_roll", "copy", plan.batch * heads.seq_kv, width / 2, half, half, repeat=4)


@cache
def _cache_facts() -> dict[str, Any]:
    return packaged.toml("tilewise.server.operators", "cache.toml")


def cache_width(att: Attention, kv_heads: Number) -> Number:
    """Cached elements of one token in one layer: keys and values, or MLA's latent with its rotated key."""
    if att.shares_kv:
        return 0
    if att.latent is not None:
        return att.latent.kv_rank + att.latent.rope_dim
    return kv_heads * (att.head_dim + (0 if att.values_are_keys else att.head_dim_v))


def project_latent(
    e: Emitter, plan: Plan, att: Attention, latent: Latent, inputs: tuple[Linear, ...], heads: Heads, style: Variant
) -> None:
    """MLA: down-projections share the input; up-projections follow their norms."""
    first = [p for p in inputs if p.split == Split.NONE or (p.name.startswith("q") and not some(latent.q_rank))]
    project(e, plan, first, heads.tokens, save_input=not plan.selective)
    for n in att.norms:
        norm(e, plan, n, heads.tokens, style)
    for linear in inputs:
        cached = plan.decode and linear.name.startswith(
            "kv"
        )  # engines absorb it, most of torch's code expands the whole cache
        if linear not in first and not (cached and plan.served):
            tokens = plan.batch * heads.seq_kv if cached and not latent.caches_whole else heads.tokens
            project(e, plan, (linear,), tokens, save_input=not plan.selective)
    if not plan.served:
        _join_latent(e, plan, latent, heads, style)


def _join_latent(e: Emitter, plan: Plan, latent: Latent, heads: Heads, style: Variant) -> None:
    """Queries and keys of every head out of a part without positions and a rotated part, for keys the same for all heads.

    In decode the keys are those of the whole latent cache: transformers expands it at every token, and absorbs nothing. Some
    families cache every head's keys and values instead.
    """
    keys = (heads.tokens if latent.caches_whole else plan.batch * heads.seq_kv) * heads.q
    if plan.decode or not plan.fused:
        own, shared = ("copy", "copy") if plan.fused else ("transpose", "transpose.repeat_kv")
        for op, cols, sharers in ((own, latent.nope_dim, 1), (shared, latent.rope_dim, heads.q)):
            size = keys * cols * plan.width
            e.memory("expand_keys", op, keys, cols, size / sharers, size, direction=e.forward)
    if plan.fused:
        return
    queries = heads.tokens * heads.q
    size = queries * heads.dim * plan.width
    e.memory("join_heads", "rope.cat", queries, heads.dim, size, size, direction=e.forward)
    if plan.train and e.keep:
        _join_latent_backward(e, plan, latent, heads, queries)


def _join_latent_backward(e: Emitter, plan: Plan, latent: Latent, heads: Heads, rows: Number) -> None:
    """The gradients' parts side by side, in the layout of their products; the shared rotated key's are added up.

    Keys were written in place, part by part: for each part autograd copies the whole gradient and the part out of it.
    """
    for cols, repeat in ((heads.dim, 2), (latent.rope_dim, 2), (latent.nope_dim, 1)):
        size = rows * cols * plan.width
        e.memory("expand_keys", "copy", rows, cols, size, size, direction="backward", repeat=repeat)
    rope = rows * latent.rope_dim * plan.width
    e.memory("expand_keys", "fill", rows, latent.rope_dim, 0, rope, direction="backward")
    e.memory(
        "expand_keys",
        "reduce.repeat_kv_backward",
        heads.tokens,
        latent.rope_dim,
        rope,
        rope / heads.q,
        direction="backward",
    )
    joined = (
        (heads.tokens, latent.kv_rank + latent.rope_dim),
        (rows, latent.nope_dim + heads.dim_v),
        (rows, heads.dim),
    )
    for count, cols in joined:
        size = count * cols * plan.width
        e.memory("join_heads", "cat", count, cols, size, size, direction="backward")
    for _, cols in joined[1:]:
        e.launches("join_heads", OPERATIONS["contiguous"].forward, rows, cols, plan.width, direction="backward")
