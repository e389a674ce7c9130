"""What surrounds the layers: positions, embeddings, lm_head, loss, optimizer."""

from __future__ import annotations

from tilewise.server.architecture.model import Architecture, Attention, Embedding, Split, Stack
from tilewise.server.operators.attention_kernel import reach
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import accumulate, norm, operation, project, shard
from tilewise.server.operators.numbers import Number, larger, smaller, some
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import (
    ACTIVATIONS,
    CROSS_ENTROPY,
    CROSS_ENTROPY_NARROW,
    RESIDUAL,
    SCALE,
    SOFTCAP,
)
from tilewise.server.operators.variants import Variant

# torch's embedding backward adds atomically up to this many tokens and sorts beyond (ATen/native/cuda/Embedding.cu)
ATOMIC_EMBEDDING = 3072
SORTED_EMBEDDING = 31  # a fill, 28 small kernels that sort and count, two that add up


def _rope_dim(stack: Stack) -> Number:
    """Width of the rotary tables; 0 where the stack has none."""
    dims = [m.rope_dim for block in stack.blocks for m in block.mixers if isinstance(m, Attention)]
    widest: Number = 0
    for dim in dims:
        widest = larger(widest, dim)
    return widest


def _spans(stack: Stack) -> list[Number]:
    """The reach of each kind of attention of a stack, 0 for all keys; one number where layers differ in nothing else."""
    mixers = [m for block in stack.blocks for m in block.mixers if isinstance(m, Attention) and not m.cross]
    found = {some(reach(m)): reach(m) for m in mixers}
    return list(found.values())


def positions(e: Emitter, plan: Plan, stack: Stack, style: Variant) -> None:
    """Position ids, the check for a packed batch, masks, the rotary tables: tiny kernels that eager code launches.

    transformers looks whether sequences are packed where no cache is kept (masking_utils.py), and waits for the answer, once
    for every kind of mask. An encoder does neither.
    """
    if plan.fused:
        return
    spans, rope_dim = [] if _sees_all(stack) else _spans(stack), _rope_dim(stack)
    with e.scope(layer="positions", part="embedding"):
        ids = 8 * plan.tokens
        if spans:
            e.memory("positions", "pointwise", plan.sequence, 1, 8 * plan.sequence, 8 * plan.sequence, repeat=2)
        if style.positions:
            e.memory("positions", "pointwise", plan.tokens, 1, ids, ids, repeat=style.positions)
        if spans and not style.positions and plan.workload.cache == "none" and not plan.decode:
            kernels = (10 if plan.batch == 1 else 9) * len(spans)
            e.memory("packed_check", "pointwise", plan.tokens, 1, ids, ids, repeat=kernels)
        for span in spans:
            _make_mask(e, plan, span, style)
        if some(rope_dim) and not style.sinusoids:
            table = 4 * plan.sequence * rope_dim
            angles = 1.0 * plan.sequence * rope_dim  # positions x frequencies, an outer product
            e.memory("rope_angles", "pointwise", plan.sequence, rope_dim, table / 2, table / 2, flops=angles)
            e.memory("rope_table", "pointwise", plan.sequence, rope_dim, table, table, repeat=8)


def _make_mask(e: Emitter, plan: Plan, span: Number, style: Variant) -> None:
    """A mask for all layers of a kind (masking_utils.sdpa_mask), where sdpa's causal flag does not do; written-out attention adds it."""
    rows, cols = plan.sequence, smaller(plan.context, span) if some(span) and plan.decode else plan.context
    windowed = some(span) and some(plan.context - span + 1)
    if not (windowed or style.scores or style.masks):
        return
    area = rows * cols
    e.memory("mask_indices", "pointwise", cols, 1, 8 * cols, 8 * cols, repeat=8 if windowed else 6)
    e.memory("mask_compare", "pointwise_strided", rows, cols, 0, area, repeat=1 + windowed)
    if windowed:
        e.memory("mask_and", "pointwise", rows, cols, 1.5 * area, area, repeat=2)
    if style.scores:
        e.memory("mask_where", "pointwise", rows, cols, area, plan.width * area)
        e.memory("mask_where", "fill", 1, 1, 0, plan.width)


def embed(e: Emitter, plan: Plan, tables: tuple[Embedding, ...], variant: Variant, tokens: Number) -> None:
    """Look-ups (0 FLOPs) and their sums; the token table is sharded by rows under tensor parallelism."""
    with e.scope(layer="embedding", part="embedding", count=1):
        for index, table in enumerate(tables):
            size = tokens * table.width * plan.width
            e.memory(table.name, "embedding", tokens, table.width, size + 8 * tokens, size)
            if index:
                operation(e, plan, "embedding_add", RESIDUAL, tokens, table.width)
            if plan.train:
                _embedding_backward(e, plan, table, tokens, size)
        if tables and variant.scales_embedding:
            scaled = tokens * tables[0].width * plan.width
            e.memory("embedding_scale", "pointwise", tokens, tables[0].width, scaled, scaled)
        if tables:
            size, library = tokens * tables[0].width * plan.width, plan.kernels.reduces.get(plan.tp, 0)
            e.collective("all_reduce", "all_reduce", size, plan.tp, library=library)


def _embedding_backward(e: Emitter, plan: Plan, table: Embedding, tokens: Number, size: Number) -> None:
    rows = table.rows // plan.tp if table.kind == "token" else table.rows
    if plan.whole:
        _fused_embedding_backward(e, plan, table, rows, tokens)
        return
    whole = rows * table.width * plan.width
    kernels = embedding_backward_kernels(plan.tokens)
    e.memory(table.name, "embedding_backward", tokens, table.width, size, whole, direction="backward", kernels=kernels)
    if plan.tokens > ATOMIC_EMBEDDING:
        e.save(8 * tokens)


def embedding_backward_kernels(tokens: int) -> int:
    """Launches of an embedding's backward in eager code."""
    return SORTED_EMBEDDING if tokens > ATOMIC_EMBEDDING else 2


def _fused_embedding_backward(e: Emitter, plan: Plan, table: Embedding, rows: Number, tokens: Number) -> None:
    """Inductor adds atomically into an fp32 table that it fills first and casts afterwards."""
    wide, taken = 4 * rows * table.width, tokens * table.width
    e.memory(table.name, "fill", rows, table.width, 0, wide, direction="backward", wide=True)
    e.memory(table.name, "scatter_add", tokens, table.width, taken * (plan.width + 4), 4 * taken, direction="backward")
    e.memory(table.name, "cast", rows, table.width, wide, wide * plan.width / 4, direction="backward", wide=True)


def head(e: Emitter, plan: Plan, arch: Architecture, style: Variant, tokens: Number) -> None:
    """Final norms and the matrix onto the vocabulary, on the positions asked for; in training the loss."""
    if arch.head is None:
        return
    asked = plan.batch if plan.decode or plan.workload.logits == "last" else tokens
    with e.scope(layer="lm_head", part="lm_head", count=1):
        for linear in arch.head_linears:
            project(e, plan, (linear,), asked, plain=True)
            operation(e, plan, "head_activation", ACTIVATIONS["silu"], asked, linear.outputs)
        for n in arch.head_norms:
            norm(e, plan, n, asked, style)
        project(e, plan, (arch.head,), asked, plain=True)
        vocab = shard(arch.head, plan.tp)[1]
        if not plan.fused and (style.softcaps_logits or style.scales_logits):
            operation(e, plan, "logits", SOFTCAP if style.softcaps_logits else SCALE, asked, vocab)
        if arch.head.split == Split.COLUMN and not plan.train:
            e.collective("all_gather", "all_gather", asked * vocab * plan.width * plan.tp, plan.tp)
    if plan.train:
        loss(
            e,
            plan,
            asked,
            vocab,
            encoder=len(arch.stacks) == 1 and _sees_all(arch.stacks[0]) and not style.lifts_logits,
        )


def _sees_all(stack: Stack) -> bool:
    """Whether no attention of a stack is causal: an encoder."""
    return not any(m.causal for block in stack.blocks for m in block.mixers if isinstance(m, Attention))


def loss(e: Emitter, plan: Plan, tokens: Number, vocab: Number, *, encoder: bool) -> None:
    """Cross entropy; decoders' eager code lifts the logits to fp32 first and shifts the labels, encoders' does not."""
    with e.scope(layer="loss", part="loss", count=1):
        if encoder and not plan.fused:
            operation(e, plan, "cross_entropy", CROSS_ENTROPY_NARROW, tokens, vocab)
            return
        operation(e, plan, "cross_entropy", CROSS_ENTROPY[plan.fused], tokens, vocab)
        if not plan.fused:
            labels = 8 * plan.tokens
            e.memory("labels", "fill", plan.tokens, 1, labels, labels, repeat=3 if plan.batch == 1 else 4)
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
            accumulate(e, plan, outputs, inputs, name="tied_grad")


FP32 = 4  # bytes of an element
FUSED_ADAM_ELEMENTS = 320 * 65536  # elements one launch of the multi-tensor kernel covers (ATen MultiTensorApply.cuh)


def optimize(e: Emitter, plan: Plan, parameters: Number) -> None:
    """The optimizer's step over the parameters of one GPU, in the precision that the stack keeps them in."""
    if plan.workload.optimizer == "none":
        return
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
