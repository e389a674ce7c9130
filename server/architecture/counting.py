"""Parameters of an Architecture: in all, those a token visits, and by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilewise.server.architecture.model import (
    Architecture,
    Attention,
    Block,
    Embedding,
    Experts,
    FeedForward,
    Linear,
    Mixer,
    Norm,
    Recurrent,
    Size,
    Stack,
)  # fmt: skip
from tilewise.server.architecture.sizes import column

_Counted = Linear | Norm | Embedding


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """total:  every parameter once (a tied table once)
    active: total less the routed experts a token does not visit; the input embedding is in it
    parts:  embedding, lm_head, attention, mlp, experts, shared_experts, router, norm, recurrent, vision, audio, other
    """

    total: Size
    active: Size
    parts: dict[str, Size]

    def rows(self, candidates: int) -> Iterator[ParameterCount]:
        """One of plain numbers for each candidate; a part that a candidate lacks is left out."""
        columns = [column(size, candidates) for size in self.parts.values()]
        whole = column(self.total, candidates), column(self.active, candidates)
        for total, active, *sizes in zip(*whole, *columns, strict=True):
            parts = {part: size for part, size in zip(self.parts, sizes, strict=True) if size}
            yield ParameterCount(total=total, active=active, parts=parts)


def count(architecture: Architecture) -> ParameterCount:
    """Parameters of `architecture`; arrays where its sizes are arrays."""
    parts: dict[str, Size] = {}
    idle: Size = 0
    for stack in architecture.stacks:
        idle = idle + _add_stack(parts, stack, alone=len(architecture.stacks) == 1)
    _add_head(parts, architecture)
    total = sum(parts.values(), start=0)
    return ParameterCount(total=total, active=total - idle, parts=parts)


def parameters(things: Iterable[_Counted]) -> Size:
    result: Size = 0
    for thing in things:
        result = result + thing.parameters
    return result


def _add(parts: dict[str, Size], part: str, size: Size) -> None:
    if isinstance(size, int) and size == 0:
        return
    parts[part] = parts.get(part, 0) + size


def _add_head(parts: dict[str, Size], architecture: Architecture) -> None:
    head = architecture.head
    if head is not None:
        bias: Size = head.outputs if head.bias else 0
        _add(parts, "lm_head", bias if architecture.tied else head.parameters)
    _add(parts, "norm", parameters(architecture.head_norms))
    _add(parts, "other", parameters(architecture.head_linears) + architecture.extra_parameters)


def _add_stack(parts: dict[str, Size], stack: Stack, alone: bool) -> Size:
    """Adds a tower to `parts`, one for images or sound beside others as one part; returns what a token leaves idle."""
    own: dict[str, Size] = parts if alone or stack.role == "text" else {}
    idle: Size = 0
    for block in stack.blocks:
        idle = idle + _add_block(own, block)
    _add(own, "embedding", parameters(stack.embeddings))
    _add(own, "norm", parameters(stack.norms))
    _add(own, "other", parameters((*stack.linears, *stack.pooled, *stack.projector)) + stack.extra_parameters)
    if own is not parts:
        _add(parts, stack.role, sum(own.values(), start=0))
    return idle


def _add_block(parts: dict[str, Size], block: Block) -> Size:
    if block.shared_weights:
        return 0
    own: dict[str, Size] = {}
    _add(own, "norm", parameters(block.norms))
    _add(own, "other", parameters(block.extra_linears) + block.extra_parameters)
    for mixer in block.mixers:
        _add_mixer(own, mixer)
    idle = _add_feed_forward(own, block.feed_forward)
    for part, size in own.items():
        _add(parts, part, size * block.count)
    return idle * block.count


def _add_mixer(parts: dict[str, Size], mixer: Mixer) -> None:
    part = "recurrent" if isinstance(mixer, Recurrent) else "attention"
    _add(parts, part, parameters(mixer.projections) + mixer.extra_parameters)
    _add(parts, "norm", parameters(mixer.norms))
    if isinstance(mixer, Recurrent):
        bias: Size = mixer.conv_channels if mixer.conv_bias else 0
        _add(parts, part, mixer.conv_kernel * mixer.conv_channels + bias)
    if isinstance(mixer, Attention):
        _add(parts, part, mixer.heads if mixer.sinks else 0)
        if mixer.indexer is not None:
            _add(parts, part, parameters(mixer.indexer.projections) + mixer.indexer.extra_parameters)
            _add(parts, "norm", parameters(mixer.indexer.norms))


def _add_feed_forward(parts: dict[str, Size], feed: FeedForward | None) -> Size:
    if feed is None:
        return 0
    if not isinstance(feed, Experts):
        _add(parts, "mlp", parameters(feed.projections))
        _add(parts, "norm", parameters(feed.norms))
        return 0
    one = parameters(feed.expert)
    _add(parts, "experts", one * feed.count + feed.unused_parameters)
    _add(parts, "other", parameters(feed.latent))
    _add(parts, "router", feed.router.parameters + feed.extra_parameters)
    if feed.shared is not None:
        _add(parts, "shared_experts", parameters(feed.shared.projections))
    if feed.shared_gate is not None:
        _add(parts, "shared_experts", feed.shared_gate.parameters)
    idle: Size = one * (feed.count - feed.top_k)
    return idle + feed.unused_parameters
