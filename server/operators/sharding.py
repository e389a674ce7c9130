"""Which tensor-parallel sizes a shape allows, and which quantisation blocks its shards still fill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture.model import Architecture, Attention, Experts, Linear, Mlp, Recurrent, Size, Split
from tilewise.server.workload import Workload

BLOCKS = {"fp8_block": 128, "mxfp8": 32, "mxfp4": 32, "nvfp4": 16}
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """Whether every shard of one sharded width is whole quantisation blocks.

    shard: elements per rank; valid: tensor-parallel sizes (powers of two) at which it is
    """

    name: str
    width: int
    tensor_parallel: int
    block: int
    shard: float
    passes: bool
    valid: tuple[int, ...]


def check(arch: Architecture, workload: Workload) -> None:
    """Raise InvalidInput where heads, widths or vocabulary cannot be split over the workload's tensor_parallel."""
    tp = workload.tensor_parallel
    if tp == 1:
        return
    for name, size in _divisible(arch):
        if np.any(np.asarray(size) % tp):
            value = int(np.asarray(size).reshape(-1)[np.argmax(np.asarray(size).reshape(-1) % tp > 0)])
            raise _refusal(name, value, tp)


def _refusal(name: str, value: int, tp: int) -> InvalidInput:
    valid = divisors(value)
    message = f"{name} {value} cannot be split over tensor_parallel {tp}: {value} allows {', '.join(map(str, valid))}"
    return InvalidInput(
        f"{message}; the rest of the GPUs can be used by pipeline parallelism",
        reason="TENSOR_PARALLEL_INDIVISIBLE", field="workload.tensor_parallel", valid=valid, size=value,
    )  # fmt: skip


def divisors(value: int, limit: int = 128) -> tuple[int, ...]:
    """Divisors of `value` up to `limit`."""
    return tuple(d for d in range(1, min(value, limit) + 1) if value % d == 0)


def _divisible(arch: Architecture) -> Iterator[tuple[str, Size]]:
    """Every size that tensor parallelism divides, by the name a config calls it."""
    for stack in arch.stacks:
        for block in stack.blocks:
            for mixer in block.mixers:
                if isinstance(mixer, Attention):
                    yield "num_attention_heads", mixer.heads
                elif isinstance(mixer, Recurrent):
                    yield "inner size", mixer.inner
            layer = block.feed_forward
            if isinstance(layer, Experts):
                yield "moe_intermediate_size", layer.width
                layer = layer.shared
            if isinstance(layer, Mlp):
                yield "intermediate_size", layer.width


def notes(arch: Architecture, tp: int) -> tuple[str, ...]:
    """What tensor parallelism does besides splitting: replicated kv heads, a padded vocabulary."""
    found: dict[str, None] = {}
    for stack in arch.stacks:
        for block in stack.blocks:
            for mixer in block.mixers:
                if isinstance(mixer, Attention) and mixer.latent is None and np.any(np.asarray(mixer.kv_heads) < tp):
                    heads = int(np.min(mixer.kv_heads))
                    found[
                        f"tensor_parallel {tp} exceeds {heads} kv heads: each kv head is held by {tp // heads} ranks"
                    ] = None
    if arch.head is not None and np.any(np.asarray(arch.head.outputs) % tp):
        found[f"vocabulary {int(np.max(arch.head.outputs))} is padded to a multiple of tensor_parallel {tp}"] = None
    return tuple(found)


def block_checks(arch: Architecture, tp: int, blocks: dict[str, int] | None = None) -> list[BlockCheck]:
    """Every sharded width against every quantisation block, as kernels that scale by block demand (G30-G32)."""
    widths: dict[tuple[str, int], None] = {}
    for linear in _sharded(arch):
        size = linear.outputs if linear.split == Split.COLUMN else linear.inputs
        widths[linear.name, int(np.asarray(size).reshape(-1)[0])] = None
    return [
        block_check(name, width, tp, block)
        for name, width in widths
        for block in sorted({*(blocks or BLOCKS).values()})
    ]


def block_check(name: str, width: int, tp: int, block: int) -> BlockCheck:
    valid = tuple(size for size in SIZES if width % size == 0 and (width // size) % block == 0)
    return BlockCheck(name, width, tp, block, width / tp, width % tp == 0 and (width // tp) % block == 0, valid)


def _sharded(arch: Architecture) -> Iterator[Linear]:
    for stack in arch.stacks:
        for block in stack.blocks:
            for mixer in block.mixers:
                yield from (p for p in mixer.projections if p.split != Split.NONE)
            layer = block.feed_forward
            if isinstance(layer, Experts):
                yield from (p for p in layer.expert if p.split != Split.NONE)
                layer = layer.shared
            if isinstance(layer, Mlp):
                yield from (p for p in layer.projections if p.split != Split.NONE)
