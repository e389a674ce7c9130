"""What surrounds the layers: positions, embeddings, lm_head, loss, optimizer."""

from __future__ import annotations

from functools import partial

from tilewise.server.architecture.model import Architecture, Attention, Embedding, Split, Stack
from tilewise.server.operators.attention_kernel import reach
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.feedforward import activation
from tilewise.server.operators.linear import accumulate, norm, operation, project, shard
from tilewise.server.operators.numbers import Number, choose, larger, same, smaller, some
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.relative import relative_bias
from tilewise.server.operators.sequences import FUSED, OPERATIONS, RESIDUAL, Sequence
from tilewise.server.operators.variants import Variant

# torch's embedding backward adds atomically up to this many tokens and sorts beyond (ATen/native/cuda/Embedding.cu)
ATOMIC_EMBEDDING = 3072
SORTED_EMBEDDING = 31  # a fill, 28 small kernels that sort and count, two that add up


def _attentions(stack: Stack) -> list[Attention]:
    return [m for block in stack.blocks for m in block.mixers if isinstance(m, Attention) and not m.cross]


def _rope_dims(stack: Stack, style: Variant) -> list[Number]:
    """Width of each rotary table: of one for all layers, or of one for each kind of them; none where the stack does not rotate."""
    widest: dict[bool, Number] = {}
    for mixer in _attentions(stack):
        kind = style.tables_by_kind and some(reach(mixer))
        widest[kind] = larger(widest.get(kind, 0), mixer.rope_dim)
    return [width for width in widest.values() if some(width)]


def _spans(stack: Stack, style: Variant) -> list[Number]:
    """The reach of each kind of attention of a stack, 0 for all keys; one number where layers differ in nothing else."""
    if style.windows_in_scores:
        return [0]
    found = {some(reach(m)): reach(m) for m in _attentions(stack)}
    if style.both_masks and len(found) == 1:
        found = (
            {**found, False: 0} if True in found else {**found, True: 1}
        )  # windows that no layer has are taken as none
    return list(found.values())


def positions(e: Emitter, plan: Plan, stack: Stack, style: Variant) -> None:
    """Position ids, the check for a packed batch, masks, the rotary tables: tiny kernels that eager code launches.

    transformers looks whether sequences are packed where no cache is kept (masking_utils.py), and waits for the answer, once
    for every kind of mask. An encoder does neither, and masks its windows alone.
    """
    if style.relative:
        with e.scope(layer="positions", part="embedding"):
            relative_bias(e, plan, stack, not _sees_all(stack), style.relative == "every")
        return
    spans, rope_dims = [] if _sees_all(stack) else _spans(stack, style), _rope_dims(stack, style)
    if plan.fused:
        if plan.whole:
            _compiled_positions(e, plan, bool(spans), rope_dims)
        return
    with e.scope(layer="positions", part="embedding"):
        ids, pair = 8 * plan.tokens, bool(spans and style.decoder_positions)
        if spans and not pair and stack.name != "encoder":
            e.memory("positions", "pointwise", plan.sequence, 1, 8 * plan.sequence, 8 * plan.sequence, repeat=2)
        made = style.decoder_positions if pair else style.positions
        if made:
            repeat = made + choose(plan.batch == 1, int(style.counts_positions), 0)
            e.memory("positions", "pointwise", plan.tokens, 1, ids, ids, repeat=repeat)
        if spans and style.packing and not style.positions and plan.workload.cache == "none" and not plan.decode:
            kernels = (10 if same(plan.batch, 1) else 9) * len(spans)
            e.memory("packed_check", "pointwise", plan.tokens, 1, ids, ids, repeat=kernels)
        for span in spans or _spans(stack, style):
            _make_mask(e, plan, span, style, encoder=not spans)
        for rope_dim in [] if style.sinusoids else rope_dims:
            table = 4 * plan.sequence * rope_dim
            angles = 1.0 * plan.sequence * rope_dim  # positions x frequencies, an outer product
            e.memory("rope_angles", "pointwise", plan.sequence, rope_dim, table / 2, table / 2, flops=angles)
            e.memory("rope_table", "pointwise", plan.sequence, rope_dim, table, table, repeat=8)


def _compiled_positions(e: Emitter, plan: Plan, masks: bool, rope_dims: list[Number]) -> None:
    """Inductor leaves the angles' outer product to a library (in decode after a copy), and counts packed sequences once."""
    with e.scope(layer="positions", part="embedding"):
        for rope_dim in rope_dims:
            table = 4 * plan.sequence * rope_dim
            e.memory("rope_angles", "pointwise", plan.sequence, rope_dim, 0, table / 2, repeat=2 + plan.decode)
        if masks and plan.workload.cache == "none":
            e.memory("packed_check", "reduce", plan.batch, plan.sequence, 8 * plan.tokens, 8 * plan.tokens)


def _make_mask(e: Emitter, plan: Plan, span: Number, style: Variant, encoder: bool) -> None:
    """A mask for all layers of a kind (masking_utils.sdpa_mask), where sdpa's causal flag does not do; written-out attention adds it."""
    rows, cols = plan.sequence, smaller(plan.context, span) if some(span) and plan.decode else plan.context
    windowed = some(span) and some(plan.context - span + 1)
    if not (windowed or style.scores or style.masks):
        return
    area = rows * cols
    e.memory("mask_indices", "pointwise", cols, 1, 8 * cols, 8 * cols, repeat=8 if windowed else 6)
    if encoder:  # a window both ways: distances as int64, their absolute values, the comparison
        for read, written in ((0, 8 * area), (8 * area, 8 * area), (8 * area, area)):
            e.memory("mask_distance", "pointwise", rows, cols, read, written)
    else:
        e.memory("mask_compare", "pointwise_strided", rows, cols, 0, area, repeat=1 + windowed)
    if windowed:
        e.memory("mask_and", "pointwise", rows, cols, 1.5 * area, area, repeat=2)
    if style.scores:
        e.memory("mask_where", "pointwise", rows, cols, area, plan.width * area)
        e.memory("mask_where", "fill", 1, 1, 0, plan.width)


def embed(
    e: Emitter, plan: Plan, tables: tuple[Embedding, ...], variant: Variant, tokens: Number, tower: bool = False
) -> None:  # fmt: skip
    """Look-ups (0 FLOPs) and their sums, in a tower with what its patches give; the token table is sharded by rows under tensor parallelism.

    A compiled model's first norm looks up what it reads: where a later one meets two streams, it meets the tables.
    """
    with e.scope(layer="embedding", part="embedding", count=1):
        for index, table in enumerate(tables):
            size = tokens * table.width * plan.width
            if plan.whole:
                e.memory(table.name, "pointwise", tokens, 1, 8 * tokens, 0, kernels=0)
            else:
                e.memory(table.name, "embedding", tokens, table.width, size + 8 * tokens, size)
            if (index or tower) and not plan.whole:
                operation(e, plan, "embedding_add", RESIDUAL, tokens, table.width)
            if plan.train and table.kind != "constant":
                _embedding_backward(e, plan, table, tokens, size)
            if variant.scales_embedding and table.kind == "token":
                operation(e, plan, "embedding_scale", OPERATIONS["scale"], tokens, table.width)
        if tables and variant.constant_positions and not plan.whole:
            size = tokens * tables[0].width * plan.width
            e.memory("embed_positions", "gather.index", tokens, tables[0].width, size + 8 * tokens, size)
            operation(e, plan, "embedding_add", RESIDUAL, tokens, tables[0].width)
        if tables and variant.token_dropout and not plan.fused:
            operation(e, plan, "token_dropout", OPERATIONS["token_dropout"], tokens, tables[0].width)
        if tables:
            size, library = tokens * tables[0].width * plan.width, plan.kernels.reduce(plan.tp)
            e.collective("all_reduce", "all_reduce", size, plan.tp, library=library)


def _embedding_backward(e: Emitter, plan: Plan, table: Embedding, tokens: Number, size: Number) -> None:
    rows = table.rows // plan.tp if table.kind == "token" else table.rows
    if plan.whole:
        _fused_embedding_backward(e, plan, table, rows, tokens)
        return
    whole = rows * table.width * plan.width
    kernels = embedding_backward_kernels(tokens)
    e.memory(table.name, "embedding_backward", tokens, table.width, size, whole, direction="backward", kernels=kernels)
    e.save(choose(tokens > ATOMIC_EMBEDDING, 8 * tokens, 0))


def embedding_backward_kernels(tokens: Number) -> Number:
    """Launches of an embedding's backward in eager code."""
    return choose(tokens > ATOMIC_EMBEDDING, SORTED_EMBEDDING, 2)


def _fused_embedding_backward(e: Emitter, plan: Plan, table: Embedding, rows: Number, tokens: Number) -> None:
    """Inductor fills an fp32 table by a kernel that streams, lets the first norm's backward add into it, and casts it."""
    wide, taken = 4 * rows * table.width, 4 * tokens * table.width
    memory = partial(e.memory, table.name, direction="backward", wide=True)
    memory("copy", rows, table.width, 0, wide)
    memory("copy", tokens, table.width, taken, taken, kernels=0)
    memory("cast", rows, table.width, wide, wide * plan.width / 4)


def head(e: Emitter, plan: Plan, arch: Architecture, style: Variant, tokens: Number) -> None:
    """Final norms and the matrix onto the vocabulary, on the positions asked for; in training the loss."""
    if arch.head is None:
        return
    asked = plan.batch if plan.decode or plan.workload.logits == "last" else tokens
    with e.scope(layer="lm_head", part="lm_head", count=1):
        for linear in arch.head_linears:
            if linear.name == "contact_head":  # ESM's answers only when it is asked for contacts
                continue
            project(e, plan, (linear,), asked, plain=True)
            operation(e, plan, "head_activation", activation(style.activation), asked, linear.outputs)
        for n in arch.head_norms:
            norm(e, plan, n, asked, style)
        if style.scales_head_input and not plan.fused:
            operation(e, plan, "head_scale", OPERATIONS["scale"], asked, arch.head.inputs)
        project(e, plan, (arch.head,), asked, plain=True)
        vocab = shard(arch.head, plan.tp)[1]
        if style.head_bias and not plan.fused:
            operation(e, plan, "logits_bias", OPERATIONS["bias"], asked, vocab)
        if not plan.fused and (style.softcaps_logits or style.scales_logits):
            operation(e, plan, "logits", OPERATIONS["softcap" if style.softcaps_logits else "scale"], asked, vocab)
        if arch.head.split == Split.COLUMN and not plan.train:
            e.collective("all_gather", "all_gather", asked * vocab * plan.width * plan.tp, plan.tp)
    if plan.train:
        loss(
            e,
            plan,
            asked,
            vocab,
            encoder=_sees_all(arch.stacks[0]) and arch.stacks[0].role == "text",
            pair=sum(stack.role == "text" for stack in arch.stacks) > 1,
            style=style,
        )


def _sees_all(stack: Stack) -> bool:
    """Whether no attention of a stack is causal: an encoder."""
    return not any(m.causal for block in stack.blocks for m in block.mixers if isinstance(m, Attention))


def _cross_entropy(plan: Plan, style: Variant) -> Sequence:
    if not plan.fused:
        return OPERATIONS["cross_entropy"]
    return FUSED["cross_entropy_apart" if style.loss_apart else "cross_entropy"]


def loss(e: Emitter, plan: Plan, tokens: Number, vocab: Number, *, encoder: bool, pair: bool, style: Variant) -> None:
    """Cross entropy; decoders' eager code lifts the logits to fp32 first and shifts the labels, most encoders' does neither.

    encoder: an encoder, or (`pair`) an encoder with a decoder, whose input is the labels shifted (shift_tokens_right). One compiled graph
    returns the logits beside the loss, so that they have a gradient too, which is filled with zeros.
    """
    with e.scope(layer="loss", part="loss", count=1):
        if pair and not plan.fused:
            e.launches("labels", OPERATIONS[style.shifts].forward, plan.tokens, 1, plan.width)
        if encoder and not (plan.fused or style.lifts_loss):
            operation(e, plan, "cross_entropy", OPERATIONS["cross_entropy_narrow"], tokens, vocab)
            return
        operation(e, plan, "cross_entropy", _cross_entropy(plan, style), tokens, vocab)
        if plan.whole and plan.stack.masks and plan.workload.mode == "graph" and not style.loss_apart:
            size = tokens * vocab * plan.width  # the logits' own gradient, zeros, is copied to where the graph reads it
            e.memory("logits_gradient", "copy", tokens, vocab, size, size, direction="backward")
        if not (plan.fused or encoder):
            labels = 8 * plan.tokens
            e.memory("labels", "fill", plan.tokens, 1, labels, labels, repeat=3 if same(plan.batch, 1) else 4)
        if plan.tp > 1:
            e.collective("loss_reduce", "all_reduce", 4 * tokens, plan.tp, repeat=3)


def tied(e: Emitter, plan: Plan, arch: Architecture) -> None:
    """The gradients of a tied embedding and head are added."""
    if arch.tied and arch.head is not None and plan.train:
        inputs, outputs = shard(arch.head, plan.tp)
        with e.scope(layer="lm_head", part="lm_head", count=1):
            if plan.fused:  # the head's gradient is added by its GEMM onto a copy of the embedding's
                size = outputs * inputs * plan.width
                e.memory("tied_grad", "copy", outputs, inputs, size, size, direction="backward")
            accumulate(e, plan, outputs, inputs, sum(stack.role == "text" for stack in arch.stacks), name="tied_grad")


FP32 = 4  # bytes of an element
FUSED_ADAM_ELEMENTS = 320 * 65536  # elements one launch of the multi-tensor kernel covers (ATen MultiTensorApply.cuh)


def optimize(e: Emitter, plan: Plan, parameters: Number) -> None:
    """The optimizer's step over the parameters of one GPU, in the precision that the stack keeps them in."""
    if plan.stack.clips != "nothing":
        _clip(e, parameters, plan.kept("gradients"), scales="scale" in plan.stack.clips)
    adamw(e, parameters, plan.kept("moments"))
    if plan.kept("master"):
        _copy_master(e, plan, parameters)


def _copy_master(e: Emitter, plan: Plan, parameters: Number) -> None:
    """The weights made anew of their master copy, and the buffer of gradients cleared for the next step."""
    with e.scope(layer="optimizer", part="optimizer", count=1):
        size = parameters * plan.kept("master")
        e.memory("weight_copy", "cast", 1, parameters, size, parameters * plan.width, direction="optimizer", wide=True)
        cleared = parameters * plan.kept("gradients")
        e.memory("gradient_clear", "fill", 1, parameters, 0, cleared, direction="optimizer", wide=True)


CHUNK = 16384  # a sum over everything streams as rows of any width do; reductions were measured up to this one


def _clip(e: Emitter, parameters: Number, width: int, *, scales: bool) -> None:
    """The norm of all gradients; torch's clip_grad_norm_ then scales them, whether it exceeds the limit or not."""
    size, chunk = parameters * width, smaller(parameters, CHUNK)
    with e.scope(layer="optimizer", part="optimizer", count=1):
        e.memory("clip_norm", "reduce", parameters / chunk, chunk, size, 0, direction="optimizer", wide=width == FP32)
        if scales:
            e.memory("clip_scale", "pointwise", 1, parameters, size, size, direction="optimizer", wide=width == FP32)


def adamw(e: Emitter, parameters: Number, width: int) -> None:
    """Fused AdamW: reads parameter, gradient and both moments, writes all but the gradient, all `width` bytes an element."""
    with e.scope(layer="optimizer", part="optimizer", count=1):
        size = parameters * width
        e.memory(
            "adamw", "adamw", 1, parameters, 4 * size, 3 * size, direction="optimizer", special=parameters,
            kernels=1 + parameters // FUSED_ADAM_ELEMENTS, wide=width == FP32,
        )  # fmt: skip
