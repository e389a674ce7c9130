"""Parameters one rank holds."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.server.architecture.model import (
    Architecture,
    Attention,
    Block,
    Experts,
    FeedForward,
    Linear,
    Mixer,
    Mlp,
    Norm,
    Recurrent,
    Size,
    Split,
    Stack,
)


def rank_parameters(arch: Architecture, tp: int = 1) -> Size:
    """Parameters of one of `tp` ranks: sharded matrices, experts and vocabulary divided, the rest whole."""
    total: Size = arch.extra_parameters + sum(stack_parameters(stack, tp) for stack in arch.stacks)
    total = total + sum(_linear(linear, tp) for linear in arch.head_linears)
    total = total + sum(n.parameters for n in arch.head_norms)
    if arch.head is not None:
        bias = arch.head.outputs if arch.head.bias else 0
        total = total + (bias if arch.tied else _linear(arch.head, tp))
    return total


def stack_parameters(stack: Stack, tp: int = 1) -> Size:
    total: Size = stack.extra_parameters
    for table in stack.embeddings:
        total = total + (table.parameters // tp if table.kind == "token" else table.parameters)
    for linear in (*stack.linears, *stack.pooled, *stack.projector):
        total = total + _linear(linear, tp)
    for n in stack.norms:
        total = total + n.parameters
    for block in stack.blocks:
        if not block.shared_weights:
            total = total + block.count * block_parameters(block, tp)
    return total


def around_parameters(arch: Architecture, tp: int = 1) -> Size:
    """Parameters of one rank that lie in no block: embeddings, final norms, head."""
    inside = sum(block.count * block_parameters(block, tp) for stack in arch.stacks for block in stack.blocks)
    return rank_parameters(arch, tp) - inside


def block_parameters(block: Block, tp: int = 1) -> Size:
    """Parameters of one layer."""
    total: Size = block.extra_parameters
    for linear in block.extra_linears:
        total = total + _linear(linear, tp)
    for n in block.norms:
        total = total + n.parameters
    for mixer in block.mixers:
        total = total + _mixer(mixer, tp)
    return total + (_feed_forward(block.feed_forward, tp) if block.feed_forward is not None else 0)


def _linear(linear: Linear, tp: int) -> Size:
    if linear.split == Split.NONE:
        return linear.parameters
    matrix: Size = linear.inputs * linear.outputs // tp
    bias = (linear.outputs // tp if linear.split == Split.COLUMN else linear.outputs) if linear.bias else 0
    return matrix + bias


def _plain(linears: tuple[Linear, ...], norms: tuple[Norm, ...], tp: int) -> Iterator[Size]:
    yield from (_linear(linear, tp) for linear in linears)
    yield from (n.parameters for n in norms)


def _mixer(mixer: Mixer, tp: int) -> Size:
    total: Size = mixer.extra_parameters + sum(_plain(mixer.projections, mixer.norms, tp))
    if isinstance(mixer, Attention):
        if mixer.sinks:
            total = total + mixer.heads
        if mixer.indexer is not None:
            total = (
                total + sum(_plain(mixer.indexer.projections, mixer.indexer.norms, tp)) + mixer.indexer.extra_parameters
            )
    elif isinstance(mixer, Recurrent):
        total = total + mixer.conv_channels * (mixer.conv_kernel + int(mixer.conv_bias)) // tp
    return total


def _feed_forward(layer: FeedForward, tp: int) -> Size:
    if isinstance(layer, Mlp):
        return sum(_plain(layer.projections, layer.norms, tp), start=0)
    return _experts(layer, tp)


def _experts(moe: Experts, tp: int) -> Size:
    total: Size = moe.extra_parameters + _linear(moe.router, tp)
    total = total + moe.count * sum(_linear(linear, tp) for linear in moe.expert)
    total = total + sum(_linear(linear, tp) for linear in moe.latent)
    if moe.shared is not None:
        total = total + _feed_forward(moe.shared, tp)
    if moe.shared_gate is not None:
        total = total + _linear(moe.shared_gate, tp)
    return total


def quantizable_parameters(arch: Architecture, tp: int = 1, *, experts_only: bool = False) -> Size:
    """Weights of the linear layers that run in the workload's format: all but router, embeddings, norms and lm_head.

    experts_only: of routed experts alone
    """
    part = _routed if experts_only else _quantizable
    total: Size = 0
    for stack in arch.stacks:
        for block in stack.blocks:
            if not block.shared_weights:
                total = total + block.count * part(block, tp)
    return total


def _quantizable(block: Block, tp: int) -> Size:
    total: Size = sum(_linear(p, tp) for mixer in block.mixers for p in mixer.projections)
    layer = block.feed_forward
    if isinstance(layer, Experts):
        total = total + _routed(block, tp) + sum(_linear(linear, tp) for linear in layer.latent)
        layer = layer.shared
    return total + (sum(_linear(linear, tp) for linear in layer.projections) if layer is not None else 0)


def _routed(block: Block, tp: int) -> Size:
    layer = block.feed_forward
    return layer.count * sum(_linear(linear, tp) for linear in layer.expert) if isinstance(layer, Experts) else 0
