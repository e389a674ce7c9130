"""What must be resident on one rank, and when the peak falls: as torch's allocator will have it.

Training keeps weights, optimizer states, gradients as they appear, and what autograd saves until it is used. The peak
is the largest of these moments:

What a parameter's weight, master copy, moments and gradient take is the stack's (server/stacks.toml).

    loss              all saved activations, plus the loss's copies of the logits; no gradient yet
    backward of ...   the gradients so far, the activations not yet used, and what the layer at work needs
    end of backward   all gradients, the last of them the token embedding's
    optimizer step    all gradients and states; fused AdamW needs nothing besides

GiB is 2**30 bytes; every figure here is in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.precision import FORMATS
from tilewise.hwdb.record import Record
from tilewise.server.architecture.model import Architecture, Attention, Block, Recurrent, Split
from tilewise.server.architecture.sizes import column
from tilewise.server.operators.attention import cache_width
from tilewise.server.operators.build import walk
from tilewise.server.operators.emitter import Emitter, Event
from tilewise.server.operators.engine import planned
from tilewise.server.operators.numbers import Number, choose, larger, largest, local, pick, smaller, some
from tilewise.server.operators.parameters import (
    around_parameters,
    block_parameters,
    quantizable_parameters,
    rank_parameters,
)
from tilewise.server.operators.plan import Plan
from tilewise.server.workload import Workload

# cuBLAS and cuBLASLt each hold 32 MiB on Hopper and later (getChosenWorkspaceSize in torch's CublasHandlePool.cpp)
WORKSPACE_BYTES = 64 * 2**20


class MemoryPart(Record):
    """One use of memory; `peak_bytes` of its `size_bytes` are alive at the peak."""

    name: str
    size_bytes: Number
    peak_bytes: Number


class MemoryReport(Record):
    """Resident bytes of one rank.

    parts:       what the bytes are for; the `peak_bytes` add up to total_bytes
    peak_moment: when the peak falls ("loss", "backward", "optimizer step", "forward")
    kv_cache_bytes_per_token: of one token of one sequence, over all layers of this rank, while every window still has room
    kv_cache_bytes_per_later_token: what one more token adds once the windows are full: by the layers without one, and by keys that
                 stand for several tokens their share
    """

    total_bytes: Number
    peak_moment: str | NDArray[np.str_]
    parts: tuple[MemoryPart, ...]
    kv_cache_bytes_per_token: Number
    kv_cache_bytes_per_later_token: Number = 0

    def part(self, name: str) -> Number:
        """Size of a part, 0 where the workload has none."""
        return next((part.size_bytes for part in self.parts if part.name == name), 0)

    def rows(self, count: int) -> Iterator[MemoryReport]:
        """One of plain numbers for each of `count` candidates; a use of no bytes is none."""
        sizes = [
            zip(column(part.size_bytes, count), column(part.peak_bytes, count), strict=True) for part in self.parts
        ]
        names = [part.name for part in self.parts]
        kv_bytes = self.kv_cache_bytes_per_token, self.kv_cache_bytes_per_later_token
        whole = (column(each, count) for each in (self.total_bytes, self.peak_moment, *kv_bytes))
        for total, moment, per_token, later, *each in zip(*whole, *sizes, strict=True):
            parts = (MemoryPart(name, *size) for name, size in zip(names, each, strict=True) if size[0])
            yield MemoryReport(total, moment, tuple(parts), per_token, later)


def room_bytes(capacity_bytes: float, workload: Workload) -> float:
    """What of a GPU's memory a step may take: the reserve is left to context, allocator and fragmentation."""
    return capacity_bytes * (1 - workload.reserve)


def memory(
    arch: Architecture, workload: Workload, emitted: Emitter | None = None, padding_bytes: Number = 0
) -> MemoryReport:
    """Memory of one rank; `emitted`: the operators' walk, where it has been made already; padding_bytes: of the copies that inductor pads
    for the head's gradients (server/step/padding.py), which live beside the logits' gradient.
    """
    e = emitted if emitted is not None else walk(arch, workload)
    plan = Plan.of(workload)
    return _training(arch, plan, e, padding_bytes) if plan.train else _inference(arch, plan, e)


def weight_bytes(arch: Architecture, plan: Plan) -> Number:
    """Weights as stored: linear layers in the workload's format when serving, all else (and training) at full width."""
    total = rank_parameters(arch, plan.tp)
    if plan.train:
        return total * plan.kept("weights")
    if not plan.workload.quantized:
        return total * plan.width
    experts_only = plan.served and planned(plan, arch).linear != plan.linear
    narrow = quantizable_parameters(arch, plan.tp, experts_only=experts_only)
    return narrow * FORMATS[plan.linear].bytes + (total - narrow) * plan.width


def kv_bytes_per_token(arch: Architecture, plan: Plan) -> Number:
    """Cache bytes of one token of one sequence on one rank, over all decoder layers, while every window has room."""
    grow = (pair for pair in _attentions(arch) if not _fixed(arch, pair[1]))
    return plan.stored * sum(block.count * sum(_cached(att, plan)) for block, att in grow)


def kv_bytes_per_later_token(arch: Architecture, plan: Plan) -> Number:
    """What one more token adds once every window and chunk is full; a whole number where `compression` divides it."""
    total: Number = 0
    for block, att in _attentions(arch):
        near, far = _cached(att, plan)
        total = total + block.count * (0 if _fixed(arch, att) else choose(_span(att) > 0, 0, near) + far)
    return total * plan.stored


def kv_cache_bytes(arch: Architecture, plan: Plan) -> Number:
    """Cache of every sequence at its full context; a window or chunk caps what a layer keeps."""
    total: Number = 0
    for block, att in _attentions(arch):
        near, far = _cached(att, plan)
        length = _fixed(arch, att) or plan.context
        kept = choose(_span(att) > 0, smaller(_span(att), length), length)
        total = total + block.count * (near * kept + _whole_keys(att, plan, far))
    return total * plan.batch * plan.stored


def recurrent_state_bytes(arch: Architecture, plan: Plan) -> Number:
    """States of Mamba and linear-attention layers, kept in fp32."""
    elements = sum(block.count * m.state_elements for block, m in _mixers(arch) if isinstance(m, Recurrent))
    return 4 * plan.batch * elements // plan.tp


def _mixers(arch: Architecture) -> list[tuple[Block, Attention | Recurrent]]:
    """Mixers of the stack that generates tokens; encoders keep no cache of their own."""
    return [(block, mixer) for block in arch.stacks[-1].blocks for mixer in block.mixers]


def _attentions(arch: Architecture) -> list[tuple[Block, Attention]]:
    return [(block, mixer) for block, mixer in _mixers(arch) if isinstance(mixer, Attention)]


def _fixed(arch: Architecture, att: Attention) -> Number:
    """Tokens of the sound or image that the keys are of, whose number does not grow with the context; 0: it does."""
    encoder = arch.stacks[-2] if att.cross and len(arch.stacks) > 1 else None
    return 0 if encoder is None or encoder.role == "text" else encoder.tokens


def _span(att: Attention) -> Number:
    """Tokens that a layer's window or chunk holds; 0: all."""
    return choose(att.window > 0, att.window, att.chunk)


def _cached(att: Attention, plan: Plan) -> tuple[Number, Number]:
    """Elements of one token: those of its own keys and values, and its share of keys that stand for several tokens.

    An indexer scores one key a token, or one each that stands for several.
    """
    heads, scored = local(att.kv_heads, plan.tp), 0 if att.indexer is None else att.indexer.head_dim
    whole = att.latent is not None and att.latent.caches_whole and not plan.served
    width = heads * (att.head_dim + att.head_dim_v) if whole else cache_width(att, heads)
    return (width, (width + scored) / att.compression) if some(att.compression) else (width + scored, 0)


def _whole_keys(att: Attention, plan: Plan, share: Number) -> Number:
    """Elements of the keys that stand for several tokens of the context; what is no whole key yet is none."""
    return plan.context // att.compression * share * att.compression if some(att.compression) else 0


def _inference(arch: Architecture, plan: Plan, e: Emitter) -> MemoryReport:
    asked = plan.batch if plan.decode or plan.workload.logits == "last" else plan.tokens
    vocab = 0 if arch.head is None else _local_outputs(arch, plan)
    cache = kv_cache_bytes(arch, plan) if plan.workload.cache != "none" or plan.decode else 0
    sizes = {
        "weights": weight_bytes(arch, plan),
        "kv_cache": cache,
        "recurrent_state": recurrent_state_bytes(arch, plan),
        "activations": e.transient,
        "logits": asked * vocab * plan.width,
        "workspace": WORKSPACE_BYTES,
    }
    parts = tuple(MemoryPart(name, size, size) for name, size in sizes.items() if some(size))
    total = sum(part.peak_bytes for part in parts)
    return MemoryReport(
        total,
        "decode" if plan.decode else "forward",
        parts,
        kv_bytes_per_token(arch, plan),
        kv_bytes_per_later_token(arch, plan),
    )


def _local_outputs(arch: Architecture, plan: Plan) -> Number:
    assert arch.head is not None
    return arch.head.outputs // plan.tp if arch.head.split == Split.COLUMN else arch.head.outputs


def _training(arch: Architecture, plan: Plan, e: Emitter, padding_bytes: Number) -> MemoryReport:
    parameters, updated = rank_parameters(arch, plan.tp), plan.workload.optimizer == "adamw"
    gradients = parameters * plan.kept("gradients")
    names, moments = zip(*_moments(arch, plan, e, gradients, padding_bytes), strict=True)
    at = largest([sum(alive.values()) for alive in moments])
    fixed: dict[str, Number] = {
        "weights": weight_bytes(arch, plan),
        "gathered_weights": _gathered_bytes(arch, plan) if plan.stack.gathers else 0,
        "master_weights": parameters * plan.kept("master") * updated,
        "optimizer_state": 2 * parameters * plan.kept("moments") * updated,
        "workspace": WORKSPACE_BYTES,
    }
    logits = plan.tokens * (0 if arch.head is None else _local_outputs(arch, plan))
    sizes = {
        **fixed,
        "gradients": gradients,
        "activations": _kept_until_backward(e),
        "logits": logits * plan.width,
        "logits_fp32": 0 if plan.fused else 12 * logits,
        "padding": padding_bytes,
    }
    alive = {name: pick(at, [moment.get(name, 0) for moment in moments]) for name in sizes}
    parts = tuple(MemoryPart(name, size, fixed.get(name, alive[name])) for name, size in sizes.items())
    total: Number = sum(part.peak_bytes for part in parts)
    return MemoryReport(total, np.array(names)[at], parts, 0)


def _gathered_bytes(arch: Architecture, plan: Plan) -> Number:
    """Cast weights that live at a time: a block at work, the next one fetched ahead, and what lies around the blocks."""
    widest: Number = 0
    for stack in arch.stacks:
        for block in stack.blocks:
            widest = larger(widest, block_parameters(block, plan.tp))
    return (around_parameters(arch, plan.tp) + 2 * widest) * plan.width


def _kept_until_backward(e: Emitter) -> Number:
    """What the layers, norms and head keep; the loss's own copies are counted as logits."""
    return sum(e.repeats[layer] * size for layer, size in e.saved.items() if layer != "loss")


def layer_peak(events: list[Event]) -> Number:
    """Most bytes alive in one layer's backward: what it saved is used up from its end while its gradients appear."""
    alive: Number = sum(event.saved for event in events)
    peak = alive
    for event in reversed(events):
        alive = alive + event.gradient
        peak = larger(peak, alive + event.working)
        alive = alive - event.saved
    return peak


Moment = tuple[str, dict[str, Number]]


def _moments(arch: Architecture, plan: Plan, e: Emitter, whole: Number, padding: Number) -> list[Moment]:
    """What is alive besides weights, states and workspace at each moment that can be the peak; whole: all gradients."""
    logits = plan.tokens * (0 if arch.head is None else _local_outputs(arch, plan))
    kept, each = _kept_until_backward(e), plan.kept("gradients")
    copies = {"logits": 4 * logits} if plan.fused else {"logits_fp32": 12 * logits}  # saved, incoming, outgoing
    found: list[Moment] = [("loss", {"activations": kept, **copies})]
    if some(padding):  # the logits' gradient beside its copies; the logits are used up
        found.append(("backward", {"activations": kept, "logits": 2 * logits, "padding": padding}))
    gradients: Number = 0 if arch.head is None or arch.tied else arch.head.parameters // plan.tp * each
    for stack in reversed(arch.stacks):
        for block in reversed(stack.blocks):
            label = e.block_label(stack.name, block.layers)
            once = 0 if label in e.live else e.saved[label]  # counted in the layer's own peak
            working = layer_peak(e.events[label]) - once
            found.append(("backward", {"gradients": gradients, "activations": kept + working}))
            layer = block_parameters(block, plan.tp) * each
            kept = kept - (block.count - 1) * e.saved[label]
            gradients = gradients + (block.count - 1) * layer
            found.append(("backward", {"gradients": gradients, "activations": kept + working}))
            kept, gradients = kept - e.saved[label], gradients + layer
    stream = plan.tokens * arch.hidden * plan.width
    found.append(("optimizer step", {"gradients": whole, "activations": stream}))
    return found
