"""Which tensor-parallel sizes a shape allows, and which quantisation blocks its shards still fill."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.kernels.engines import EXPERTS_ONLY
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import Floats, Ints
from tilewise.server.architecture.model import Architecture, Attention, Experts, Linear, Mlp, Recurrent, Size, Split
from tilewise.server.architecture.sizes import agreed, column
from tilewise.server.operators.numbers import Notes
from tilewise.server.workload import Workload

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def check(arch: Architecture, workload: Workload) -> None:
    """Raise InvalidInput where heads, widths or experts cannot be split over the workload's ranks, and where an encoder is to decode."""
    if workload.phase == "decode" and arch.stacks[-1].name != "decoder":
        message = f"{arch.model_type} is an {arch.stacks[-1].name} alone, which reads whole sequences and does not decode; its phases are train and prefill"
        raise InvalidInput(message, reason="INVALID_WORKLOAD", field="workload.phase")
    for name, size, ranks, field in _divisible(arch, workload) if workload.tensor_parallel > 1 else ():
        if np.any(np.asarray(size) % ranks):
            value = int(np.asarray(size).reshape(-1)[np.argmax(np.asarray(size).reshape(-1) % ranks > 0)])
            raise _refusal(name, value, ranks, field)
    if workload.tensor_parallel > 1:
        _check_kv_heads(arch, workload.tensor_parallel)
    _check_experts(arch, workload.expert_parallel)
    _check_blocks(arch, workload)


def _check_kv_heads(arch: Architecture, ranks: int) -> None:
    """Raise InvalidInput where some rank would hold part of a key and value head: ranks divide the heads, or repeat each.

    As vLLM's QKVParallelLinear and Megatron's SelfAttention have it.
    """
    for mixer in (mixer for stack in arch.stacks for block in stack.blocks for mixer in block.mixers):
        if isinstance(mixer, Attention) and mixer.latent is None:
            heads, kv_heads = np.broadcast_arrays(np.atleast_1d(mixer.heads), np.atleast_1d(mixer.kv_heads))
            torn = (kv_heads % ranks > 0) & (ranks % kv_heads > 0)
            if torn.any():
                raise _torn_heads(int(heads[np.argmax(torn)]), int(kv_heads[np.argmax(torn)]), ranks)


def _check_experts(arch: Architecture, ranks: int) -> None:
    feeds = [block.feed_forward for stack in arch.stacks for block in stack.blocks]
    if ranks > 1 and not any(isinstance(feed, Experts) for feed in feeds):
        message = f"expert_parallel {ranks} has no experts to share out: a model without experts allows 1"
        raise InvalidInput(message, reason="TENSOR_PARALLEL_INDIVISIBLE", field="workload.expert_parallel", valid=(1,))


def _torn_heads(heads: int, kv_heads: int, ranks: int) -> InvalidInput:
    valid = tuple(size for size in divisors(heads) if kv_heads % size == 0 or size % kv_heads == 0)
    return InvalidInput(
        f"num_key_value_heads {kv_heads} cannot be shared out over tensor_parallel {ranks}: {heads} query and {kv_heads} kv "
        f"heads allow {', '.join(map(str, valid))}",
        reason="TENSOR_PARALLEL_INDIVISIBLE", field="workload.tensor_parallel", valid=valid, size=kv_heads,
    )  # fmt: skip


def _check_blocks(arch: Architecture, workload: Workload) -> None:
    """Raise InvalidInput where a rank's share of a matrix is no whole number of the format's scale blocks.

    Scales run along the contraction: a linear's inputs, in training its outputs too (the input gradient contracts over
    them). In fp8_block the weight's scales stand for squares, so a side that is cut counts always; outputs that every rank
    holds whole may end in part of a square (DeepSeek-V3's kv_a_proj has 576). Engines pad experts in EXPERTS_ONLY formats.
    """
    block = FORMATS[workload.format].block
    if block == 1 or (workload.program.engine and workload.format in EXPERTS_ONLY):
        return
    for linear, head, expert in linears(arch):
        ranks = workload.expert_shards if expert else workload.tensor_parallel
        squares = workload.format == Precision.FP8_BLOCK and linear.split == Split.COLUMN
        both = workload.phase == "train" or squares
        sides = [(linear.inputs, Split.ROW), *([(linear.outputs, Split.COLUMN)] if both else [])]
        for size, split in sides:
            share = np.asarray(size) / (ranks if linear.split == split else 1)
            share = np.maximum(share, np.minimum(head, size))  # a kv head is held whole by several ranks
            if np.any(share % block):
                raise _ragged(linear, np.asarray(size), share, workload, linear.split == split)


def _ragged(linear: Linear, size: Ints, share: Floats, workload: Workload, sharded: bool) -> InvalidInput:
    worst = int(np.argmax(share.reshape(-1) % FORMATS[workload.format].block > 0))
    width, each = int(size.reshape(-1)[worst]), float(share.reshape(-1)[worst])
    name, block = workload.format.name.lower(), FORMATS[workload.format].block
    valid = whole_splits(width, block) if sharded else ()
    nearest = (max(int(each) // block, 1) * block, (int(each) // block + 1) * block)
    help_ = (
        f"tensor_parallel {', '.join(map(str, valid))} leaves whole blocks"
        if valid
        else f"{nearest[0]} and {nearest[1]} are; or another precision"
    )
    message = (
        f"{linear.name}: {each:g} of {width} on each rank is no multiple of the {block} values that share a scale in {name}; "
        f"{help_}"
    )
    return InvalidInput(message, reason="QUANTISATION_BLOCK", field="workload.precision", block=block, size=width)


def _refusal(name: str, value: int, ranks: int, field: str) -> InvalidInput:
    valid = divisors(value)
    message = f"{name} {value} cannot be split over {field} {ranks}: {value} allows {', '.join(map(str, valid))}"
    return InvalidInput(
        f"{message}; the rest of the GPUs can be used by pipeline parallelism",
        reason="TENSOR_PARALLEL_INDIVISIBLE", field=f"workload.{field}", valid=valid, size=value,
    )  # fmt: skip


def divisors(value: int, limit: int = 128) -> tuple[int, ...]:
    """Divisors of `value` up to `limit`."""
    return tuple(d for d in range(1, min(value, limit) + 1) if value % d == 0)


def _divisible(arch: Architecture, workload: Workload) -> Iterator[tuple[str, Size, int, str]]:
    """Every size that ranks divide, by the name a config calls it; how many do, and the workload's field that says so."""
    tensor = workload.tensor_parallel, "tensor_parallel"
    for stack in arch.stacks:
        for block in stack.blocks:
            for mixer in block.mixers:
                if isinstance(mixer, Attention):
                    yield "num_attention_heads", mixer.heads, *tensor
                elif isinstance(mixer, Recurrent):
                    yield "inner size", mixer.inner, *tensor
                    yield from ((name, size, *tensor) for name, size in _whole_heads(mixer))
            layer = block.feed_forward
            if isinstance(layer, Experts):
                yield "moe_intermediate_size", layer.width, workload.expert_shards, "tensor_parallel"
                yield "num_experts", layer.count, workload.expert_parallel, "expert_parallel"
                layer = layer.shared
            if isinstance(layer, Mlp):
                yield "intermediate_size", layer.width, *tensor


def _whole_heads(mixer: Recurrent) -> Iterator[tuple[str, Size]]:
    """Heads of a scan that no rank may hold in part; one group of Mamba 2 is repeated on every rank, more are shared out."""
    if mixer.kind in ("mamba2", "gated_delta", "lightning"):
        yield "heads of the scan", mixer.heads
        if np.any(np.asarray(mixer.groups) > 1):
            yield "groups of the scan" if mixer.kind == "mamba2" else "key heads of the scan", mixer.groups


def notes(arch: Architecture, tp: int, candidates: int = 1) -> list[Notes]:
    """What tensor parallelism does besides splitting, for each candidate: replicated kv heads, a padded vocabulary."""
    found: list[Notes] = [{} for _ in range(candidates)]
    mixers = [mixer for stack in arch.stacks for block in stack.blocks for mixer in block.mixers] if tp > 1 else []
    for mixer in mixers:
        if isinstance(mixer, Attention) and mixer.latent is None:
            for each, heads in zip(found, column(mixer.kv_heads, candidates), strict=True):
                if heads < tp:
                    held = f"each kv head is held by {tp // heads} ranks"
                    each[f"tensor_parallel {tp} exceeds {heads} kv heads: {held}"] = None
    outputs = 0 if arch.head is None else arch.head.outputs
    for each, vocabulary in zip(found, column(outputs, candidates), strict=True):
        if vocabulary % tp:
            each[f"vocabulary {vocabulary} is padded to a multiple of tensor_parallel {tp}"] = None
    return found


def whole_splits(width: int, block: int) -> tuple[int, ...]:
    """Tensor-parallel sizes (powers of two) at which every shard of a width is whole quantisation blocks."""
    return tuple(size for size in SIZES if width % (size * block) == 0)


def linears(arch: Architecture) -> Iterator[tuple[Linear, Size, bool]]:
    """Every matrix that a narrow format quantises, of mixers and feed-forward layers, not router and head; the width of

    an attention head (0 elsewhere), less than which no rank holds; and whether it is a routed expert's.
    """
    for stack in arch.stacks:
        for block in stack.blocks:
            for mixer in block.mixers:
                head = mixer.head_dim if isinstance(mixer, Attention) else 0
                yield from ((linear, head, False) for linear in mixer.projections)
            layer = block.feed_forward
            if isinstance(layer, Experts):
                yield from ((_half(linear, layer.width), 0, True) for linear in layer.expert)
                layer = layer.shared
            if isinstance(layer, Mlp):
                yield from ((_half(linear, layer.width), 0, False) for linear in layer.projections)


def _half(linear: Linear, width: Size) -> Linear:
    """Gate and up in one matrix are split each by itself: a rank's share is a share of either."""
    packed = linear.split == Split.COLUMN and agreed(linear.outputs == 2 * width)
    return replace(linear, outputs=width) if packed else linear
