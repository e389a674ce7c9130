"""The attention kernel itself: which query-key pairs it scores, and the rows of its forward, backward and decode."""

from __future__ import annotations

from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import VARIANT_CODES, Phase
from tilewise.server.architecture.model import Attention, Latent
from tilewise.server.operators import sms
from tilewise.server.operators.dropout import drop_weights
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number, choose, larger, same, smaller, some
from tilewise.server.operators.plan import Plan

FILLS = 4  # query heads of a key head beyond which writing them takes longer than moving all bytes, by the rates of fills and copies
CUDNN_HEAD_DIM = 256  # widest head that torch hands to cuDNN on Hopper (sdp_utils.cpp, cuDNN 9.10 and later)


class Heads(Record):
    """One rank's heads; `tokens` and `kv_tokens` are the rows of the query and of the key projections.

    compressed: of the `seq_kv` keys those that stand for several tokens each (DeepSeek V4)
    """

    q: Number
    kv: Number
    dim: Number
    dim_v: Number
    tokens: Number
    kv_tokens: Number
    seq_q: Number
    seq_kv: Number
    compressed: Number = 0


def pairs(seq_q: Number, seq_kv: Number, causal: bool, window: Number = 0, chunk: Number = 0) -> Number:
    """Query-key pairs that attention has to score: the causal part only, at most `window` keys a query, within chunks.

    The last query sees every key: query i of seq_q sees seq_kv - seq_q + i + 1 of them.
    """
    if some(chunk):
        size = choose(chunk > 0, chunk, seq_kv)
        return _chunked(seq_kv, size) - _chunked(seq_kv - seq_q, size)
    reach = choose(window > 0, smaller(window, seq_kv), seq_kv)
    if not causal:
        return seq_q * reach
    offset = seq_kv - seq_q
    ramp = smaller(larger(reach - 1 - offset, 0), seq_q)  # queries that see less than their reach
    return ramp * offset + ramp * (ramp + 1) / 2 + (seq_q - ramp) * reach


def _chunked(tokens: Number, chunk: Number) -> Number:
    """Causal pairs of the first `tokens` tokens, each within its own chunk."""
    full, rest = tokens // chunk, tokens % chunk
    return full * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2


def compressed_pairs(plan: Plan, att: Attention, seq_q: Number, most: Number = 0) -> Number:
    """Pairs of queries with keys that stand for `att.compression` tokens and are whole by then, at most `most` a query (0: all)."""
    last = plan.context if plan.decode else seq_q
    return _whole_keys(last, att.compression, most) - _whole_keys(last - seq_q, att.compression, most)


def _whole_keys(tokens: Number, rate: Number, most: Number) -> Number:
    """Whole keys behind each of the first `tokens` tokens, added up."""
    full, rest = tokens // rate, tokens % rate
    every = rate * full * (full - 1) / 2 + full * (rest + 1)
    return every - _whole_keys(larger(tokens - rate * most, 0), rate, 0) if some(most) else every


def reach(att: Attention) -> Number:
    """Keys that a query sees at most: its window or its chunk; 0: all of them."""
    return choose(att.window > 0, att.window, att.chunk)


def kernel(
    e: Emitter, plan: Plan, att: Attention, heads: Heads, bare: bool = False, library: int = 0, masks: bool = False, biased: bool = False
) -> None:  # fmt: skip
    """Softmax attention over the heads of one rank.

    Transformers passes a mask, and the kernel then computes every pair: in eager code where a window or a chunk applies,
    in compiled code always, since a traced mask cannot be found to be plainly causal (masking_utils.py). Other stacks do not.
    `masks`: it always does; `biased`: a bias that serves as one. `bare`: the kernel called by itself, which takes causality and window as they are. `library`: whose kernel by name.
    """
    span = reach(att)
    windowed = some(heads.compressed) or (some(span) and some(heads.seq_kv - span + 1))
    traced = (plan.fused or masks) and att.causal and not att.cross
    masked = not bare and plan.stack.masks and (traced or windowed or biased)
    if masked and plan.workload.attention_backend == "flash":
        raise _flash_has_no_mask()
    dynamic = plan.decode and not plan.fused  # a cache that ends at the window
    kv_heads = heads.kv
    if masked:
        if not biased:
            _mask(e, plan, heads)
        if not plan.decode:
            _mask_reads(e, plan, heads)
    if not bare and plan.stack.masks and (masked or not _shares_heads(heads)) and not same(heads.q, heads.kv):
        # in decode keys and values of the whole cache
        repeat_kv(
            e, plan, replace(heads, kv_tokens=plan.batch * heads.seq_kv) if plan.decode else heads, same(heads.kv, 1)
        )
        kv_heads = heads.q
    if not plan.fused and some(heads.dim % 8):
        _pad_heads(e, plan, heads)
    causal = att.causal and not att.cross
    scored = pairs(heads.seq_q, heads.seq_kv - heads.compressed, causal, att.window, att.chunk)
    if some(heads.compressed):
        heads, seen, chosen = _gathered(plan, att, heads, masked)
        span, scored = choose(dynamic or masked, 0, span + seen), scored + chosen
    computed = heads.seq_q * heads.seq_kv if masked else scored
    shape: dict[str, Number] = {
        "batch": plan.batch,
        "heads": heads.q,
        "kv_heads": kv_heads,
        "head_dim": heads.dim,
        "head_dim_v": heads.dim_v,
        "seq_q": heads.seq_q,
        "seq_kv": heads.seq_kv,
        "causal": int(causal and not masked and not plan.decode),
        "window": span if dynamic or not masked else 0,
        "precision": plan.plain,
        "variant": VARIANT_CODES.get(plan.workload.attention_backend, 0),
        "library": library,
    }
    _rows(e, plan, heads, kv_heads, scored, computed, shape, once=att.values_are_keys and not plan.stack.masks)


def _gathered(plan: Plan, att: Attention, heads: Heads, masked: bool) -> tuple[Heads, Number, Number]:
    """The heads over the keys that the kernel reads, the compressed ones that a query sees at most, and the pairs with those.

    A mask leaves all keys in; a kernel for sparse attention reads in decode those alone that the indexer chose.
    """
    most = 0 if att.indexer is None else att.indexer.top_k
    seen = smaller(most, heads.compressed) if some(most) else heads.compressed
    if plan.decode and not masked:
        heads = replace(heads, seq_kv=heads.seq_kv - heads.compressed + seen)
    return heads, seen, compressed_pairs(plan, att, heads.seq_q, most)


def _shares_heads(heads: Heads) -> bool:
    """Whether transformers leaves it to sdpa to meet several query heads with a key (use_gqa_in_sdpa); beside that, without a mask."""
    return same(heads.dim, heads.dim_v) and not some(heads.dim // (CUDNN_HEAD_DIM + 1))


def _flash_has_no_mask() -> InvalidInput:
    message = (
        "attention_backend 'flash' takes no mask, and transformers passes one: in compiled code always, in eager code with a window; "
        "allowed here are auto, cudnn and math, or mode eager without a window"
    )
    return InvalidInput(message, reason="INVALID_WORKLOAD", field="workload.attention_backend")


def _rows(
    e: Emitter, plan: Plan, heads: Heads, kv_heads: Number, scored: Number, computed: Number, shape: dict[str, Number],
    once: bool,
) -> None:  # fmt: skip
    """Forward (or decode) and backward, as flash-attention or cuDNN launch them; once: the keys are read as values too."""
    window = shape["window"]
    kept = choose(window > 0, smaller(heads.seq_kv, window), heads.seq_kv) if plan.decode else heads.seq_kv
    moved = Moved.of(shape, plan.width, kept, plan.stored)
    moved = replace(moved, kv=moved.kv / 2) if once else moved
    flash = choose(heads.dim > CUDNN_HEAD_DIM, 1, int(plan.workload.attention_backend == "flash"))
    phase = Phase.DECODE if plan.decode else Phase.FORWARD
    forward_row(
        e, shape, moved, scored if e.keep else 0, computed, phase=phase, direction=e.forward,
        kernels=forward_kernels(plan.decode, flash), statistics=plan.train,
    )  # fmt: skip
    if plan.train and plan.dropout.attention:
        drop_weights(e, plan, plan.batch * heads.q * computed)
    if plan.train and e.keep:
        statistics = 0 if plan.core_twice else moved.statistics
        e.save(moved.q + moved.kv + moved.out + statistics)  # out: the projection's input
        if plan.core_twice:
            forward_row(
                e, shape, moved, 0, computed, phase=phase, direction="recompute", kernels=forward_kernels(False, flash),
                statistics=True,
            )  # fmt: skip
        kernels = backward_kernels(heads.q > kv_heads, flash)
        backward_row(e, shape, moved, scored, computed, kernels=kernels)


def forward_kernels(one_query: bool, flash: Number) -> Number:
    """Launches of sdpa: cuDNN's kernel after a memset, flash's (`flash`: 1) or decode's alone."""
    return 1 if one_query else 2 - flash


def backward_kernels(grouped: Number, flash: Number) -> Number:
    """Launches of sdpa's backward; grouped: keys' and values' gradients of several heads are added up."""
    return 4 - flash + choose(grouped, 2, 0)


class Moved(Record):
    """Bytes of attention's operands: queries, keys with values, output, and the softmax statistics of each query."""

    q: Number
    kv: Number
    out: Number
    statistics: Number

    @classmethod
    def of(cls, shape: dict[str, Number], width: int, kept: Number, stored: int | None = None) -> Moved:
        """Of the columns of an attention row; `width`: bytes of an element, `kept`: keys that are read at all.

        `stored`: bytes of a key's or value's element, where those are not of that width
        """
        queries = shape["batch"] * shape["heads"] * shape["seq_q"]
        keys = shape["batch"] * shape["kv_heads"] * kept
        dim, dim_v = shape["head_dim"], shape["head_dim_v"]
        latent = (shape["kv_heads"] == 1) & (dim_v < dim)  # absorbed heads: the values are a part of the keys
        wide = dim + choose(latent, 0, dim_v)
        return cls(
            queries * dim * width,
            keys * wide * (stored or width),
            queries * dim_v * width,
            4 * queries,
        )


def forward_row(
    e: Emitter,
    shape: dict[str, Number],
    moved: Moved,
    scored: Number,
    computed: Number,
    *,
    phase: Phase,
    direction: str,
    kernels: Number,
    statistics: bool,
    name: str = "attention",
) -> None:
    """Attention over the query-key pairs `scored` (what the model asks for) and `computed` (what the kernel runs)."""
    heads = shape["batch"] * shape["heads"]
    work = 2.0 * heads * (shape["head_dim"] + shape["head_dim_v"])
    e.attention(
        name, phase, direction=direction, flops=work * scored, executed_flops=work * computed,
        bytes_read=moved.q + moved.kv, bytes_written=moved.out + (moved.statistics if statistics else 0),
        special=heads * computed, kernels=kernels, **shape,
    )  # fmt: skip


def backward_row(
    e: Emitter,
    shape: dict[str, Number],
    moved: Moved,
    scored: Number,
    computed: Number,
    *,
    kernels: Number,
    name: str = "attention",
) -> None:
    """The gradients of all three operands; the scores are computed once more, which only HFU counts."""
    heads = shape["batch"] * shape["heads"]
    work = 2.0 * heads * (shape["head_dim"] + shape["head_dim_v"])
    again = 2.0 * heads * shape["head_dim"]
    e.attention(
        name, Phase.BACKWARD, direction="backward", flops=2 * work * scored,
        executed_flops=(2 * work + again) * computed, bytes_read=moved.q + moved.kv + 2 * moved.out + moved.statistics,
        bytes_written=moved.q + moved.kv, special=heads * computed, kernels=kernels, **shape,
    )  # fmt: skip


def _mask(e: Emitter, plan: Plan, heads: Heads) -> None:
    if plan.fused:  # one for every layer of a kind; in decode, where it costs nothing, each has its own
        rows, once = plan.batch * heads.seq_q, 1 if plan.decode else 1 / larger(e.count, 1)
        area = rows * heads.seq_kv
        e.memory("mask", "pointwise", rows, heads.seq_kv, area, plan.width * area, direction=e.forward, repeat=once)
    else:
        make_additive(e, plan, heads.seq_q, heads.seq_kv)


def make_additive(e: Emitter, plan: Plan, rows: Number, cols: Number) -> None:
    """sdpa turns a boolean mask into one of the scores' type, for every sequence: zeros, the mask's opposite, -inf where it holds."""
    area = plan.batch * rows * cols
    wide = plan.width * area
    for kernel_name, read, written in (("fill", 0, wide), ("pointwise", area, area), ("pointwise", area + wide, wide)):
        e.memory("mask", kernel_name, plan.batch * rows, cols, read, written, direction=e.forward)


def _mask_reads(e: Emitter, plan: Plan, heads: Heads) -> None:
    """What a dense mask adds to the attention kernels: of the values' width, which is the narrower one in latent attention."""
    pairs = plan.batch * heads.q * heads.seq_q * heads.seq_kv
    for direction, way in ((e.forward, "forward"), ("backward", "backward"))[: 1 + (plan.train and e.keep)]:
        sms.spend(e, "mask_read", pairs * sms.mask_s(heads.dim_v, way), direction)


def repeat_kv(e: Emitter, plan: Plan, heads: Heads, single: bool = False) -> None:
    """Keys and values copied to every query head: what sdpa needs once a mask is given; of a single head they are a view."""
    rows, widths = heads.kv_tokens * heads.kv, (heads.dim, heads.dim_v)
    for cols, repeat in [(heads.dim, 2)] if same(*widths) else [(width, 1) for width in widths]:
        small, large = rows * cols * plan.width, heads.kv_tokens * heads.q * cols * plan.width
        if not single:
            op, read = _spreading(plan, heads, small)
            e.memory("repeat_kv", op, rows, cols, read, large, direction=e.forward, repeat=repeat)
        if plan.train and e.keep:
            back = "reduce.repeat_kv_backward"
            e.memory("repeat_kv", back, rows, cols, large, small, direction="backward", repeat=repeat)


def _spreading(plan: Plan, heads: Heads, read: Number) -> tuple[str, Number]:
    """Inductor's kernel streams, and writes no faster than a fill where that is most of what it does."""
    if not plan.fused:
        return "transpose.repeat_kv", read
    return ("fill", 0) if some(heads.q - FILLS * heads.kv) else ("copy", read)


def _pad_heads(e: Emitter, plan: Plan, heads: Heads) -> None:
    """sdpa pads heads that are no multiple of 8 wide, and cuts the result and the gradients back."""
    rows, cols = heads.tokens, heads.q * heads.dim
    size = rows * cols * plan.width
    e.memory("pad_heads", "copy", rows, cols, size, size, direction=e.forward, repeat=3, kernels=2)
    if plan.train and e.keep:
        e.memory("pad_heads", "copy", rows, cols, size, size, direction="backward", repeat=4)


def absorbed(e: Emitter, plan: Plan, att: Attention, latent: Latent, heads: Heads, library: int = 0) -> None:
    """MLA's decode over the latent cache: queries are taken into the latent space and results back, head by head.

    `library`: whose attention kernel by name
    """
    widths, wide = (plan.inner, plan.weight, float(plan.width)), latent.kv_rank + latent.rope_dim
    e.gemm(
        "absorb_q", heads.tokens, latent.kv_rank, latent.nope_dim, precision=plan.linear, widths=widths, groups=heads.q
    )
    queries, cached = plan.batch * heads.q, plan.batch * heads.seq_kv * wide
    work = 2.0 * queries * heads.seq_q * heads.seq_kv * (wide + latent.kv_rank)
    e.attention(
        "attention", Phase.DECODE, batch=plan.batch, heads=heads.q, kv_heads=1, head_dim=wide,
        head_dim_v=latent.kv_rank, seq_q=heads.seq_q, seq_kv=heads.seq_kv, precision=plan.plain, flops=work,
        executed_flops=work, bytes_read=plan.width * queries * wide + plan.stored * cached,
        bytes_written=plan.width * queries * latent.kv_rank, special=queries * heads.seq_kv, library=library,
    )  # fmt: skip
    e.gemm(
        "absorb_v", heads.tokens, att.head_dim_v, latent.kv_rank, precision=plan.linear, widths=widths, groups=heads.q
    )
