"""Mixers with a state: Mamba 1 and 2, gated delta net. Their scans are taken as the fused kernels that exist for them."""

from __future__ import annotations

from tilewise.server.architecture.model import Recurrent
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import norm, operation, project
from tilewise.server.operators.numbers import Number, some
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import ACTIVATIONS, GATE
from tilewise.server.operators.variants import Variant

CHUNK = {
    "mamba2": 256,
    "gated_delta": 64,
    "lightning": 256,
}  # tokens a chunk: mamba_ssm, flash-linear-attention, MiniMax


def scan_flops(mixer: Recurrent, tp: int, decode: bool) -> Number:
    """FLOPs of the recurrence per token.

    Mamba 1: 9 inner state (mamba_ssm's own count). Mamba 2 (SSD, chunk Q, causal half): per head Q (N + P) within the
    chunk and 4 N P for the state; gated delta: per head the same with the triangular solve, and 6 N P for the state.
    """
    if mixer.kind == "mamba1":
        return 9.0 * (mixer.inner // tp) * mixer.state
    heads = mixer.heads // tp
    additive = mixer.kind in (
        "mamba2",
        "lightning",
    )  # a decay and an outer product; gated delta also corrects the state
    state = (4.0 if additive else 6.0) * mixer.state * mixer.head_dim
    if decode:
        return heads * state
    chunk = CHUNK[mixer.kind]
    if additive:
        return heads * (state + chunk * mixer.head_dim) + (mixer.groups // tp or 1) * chunk * mixer.state
    return heads * (state + chunk * (3 * mixer.state + 2 * mixer.head_dim))


def recur(e: Emitter, plan: Plan, mixer: Recurrent, style: Variant, tokens: Number) -> None:
    """In-projections, depthwise convolution, scan, gate, out-projection; decode carries the state instead of a cache."""
    *first, out = mixer.projections
    inner = mixer.inner // plan.tp
    with e.scope(part="mixer"):
        project(e, plan, first, tokens, save_input=not plan.selective)
        if some(mixer.conv_kernel):
            _convolve(e, plan, mixer, tokens)
        if mixer.kind != "short_conv":
            _scan(e, plan, mixer, tokens, inner)
        for n in mixer.norms:
            norm(e, plan, n, tokens, style)
        operation(e, plan, "gate", ACTIVATIONS["silu"], tokens, inner)
        operation(e, plan, "gate", GATE, tokens, inner)
        project(e, plan, (out,), tokens, save_input=not plan.selective)


def _convolve(e: Emitter, plan: Plan, mixer: Recurrent, tokens: Number) -> None:
    channels = mixer.conv_channels // plan.tp
    size = tokens * channels * plan.width
    work = 2.0 * tokens * channels * mixer.conv_kernel
    if (
        mixer.kind == "short_conv" and plan.decode and not plan.fused
    ):  # the state and the new token side by side, and the state kept
        window = size * mixer.conv_kernel
        e.memory("conv_state", "cat", tokens, channels * (mixer.conv_kernel + 1), window + size, window + size)
        e.memory("conv_state", "transpose", tokens, channels * mixer.conv_kernel, window, window)
    e.memory("conv1d", "conv1d", tokens, channels, size, size, direction=e.forward, flops=work)
    if plan.train and e.keep:
        e.save(size)
        e.memory("conv1d", "conv1d", tokens, channels, 2 * size, size, direction="backward", flops=2 * work)


def _scan(e: Emitter, plan: Plan, mixer: Recurrent, tokens: Number, inner: Number) -> None:
    """Reads x, dt and the input/output projections of the state, writes y; decode reads and writes the state."""
    side = 2 * mixer.state * (mixer.groups if mixer.kind != "mamba1" else 1)
    size = tokens * (2 * inner + side) * plan.width
    state = plan.batch * (mixer.state_elements // plan.tp) * 4 if plan.decode else 0
    written = tokens * inner * plan.width
    work = tokens * scan_flops(mixer, plan.tp, plan.decode)
    e.memory(
        "scan", "scan", tokens, inner, size + state, written + state, direction=e.forward, flops=work,
        special=tokens * (mixer.heads if mixer.kind != "mamba1" else inner * mixer.state),
    )  # fmt: skip
    if plan.train and e.keep:
        e.save(size + written)
        e.memory("scan", "scan", tokens, inner, size + 2 * written, size, direction="backward", flops=2 * work)
