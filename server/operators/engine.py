"""A layer as a serving engine runs it: q, k, v in one product, gate and up in one, experts as one fused layer.

What differs from torch's compiled code is written here over the same description of the layer; all else (norms with their
addition, activations, embedding, head, collectives) is what `mode` other than eager emits. Every product is the engine's own
where one was published (plan.kernels), else what answers without an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels.engines import EXPERTS_ONLY, NONE, Kernel, Kernels
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import OP_CODES, Kind, Phase
from tilewise.server.architecture.model import Architecture, Attention, Experts, Latent, Recurrent, Split
from tilewise.server.architecture.sizes import agreed
from tilewise.server.operators import attention, experts, feedforward
from tilewise.server.operators.attention_kernel import Heads, absorbed, kernel
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import all_reduce, joined, operation, project, shard
from tilewise.server.operators.numbers import Notes, Number, same, some
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import RESIDUAL, SHARED_GATE
from tilewise.server.operators.variants import Variant
from tilewise.server.workload import Workload

NAMED = ("attention", "latent attention")


def planned(plan: Plan, arch: Architecture) -> Plan:
    """The plan of a model whose experts alone have the narrow format (gpt-oss): its other products run in 16 bit."""
    if plan.linear not in EXPERTS_ONLY or not any(_mixtures(arch)):
        return plan
    return replace(plan, linear=plan.plain, inner=float(plan.width), weight=float(plan.width))


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
    """One attention sub-layer: one product in, rotation with the write to the paged cache, kernel, one product out."""
    heads = attention.heads_of(plan, att, style, tokens, source)
    if _kind(att) not in NAMED:
        attention.attend(e, plan, att, style, tokens, source, input_saved=input_saved)
        return
    if att.latent is not None:
        _attend_latent(e, plan, att, att.latent, heads, style)
        return
    inputs = att.projections[:-1]
    widths = zip(inputs, attention.outputs(plan, att, inputs), strict=True)
    local = sum(shard(linear, plan.tp)[1] if width is None else width for linear, width in widths)
    with e.scope(part="attention"):
        project(e, plan, (joined("qkv_proj", inputs),), tokens, outputs=[local])
        held = plan.width == 2 and plan.kernels.rotates(*_cached(plan))
        _rotate(e, plan, att, heads, held)
        for _ in range(att.passes):
            kernel(e, plan, att, heads, bare=True, library=_library(plan, plan.kernels.attention))
        project(e, plan, att.projections[-1:], tokens)


def _attend_latent(e: Emitter, plan: Plan, att: Attention, latent: Latent, heads: Heads, style: Variant) -> None:
    """Latent attention (MLA): both down-projections in one product; the kernel's time holds rotation and cache, if known."""
    *inputs, output = att.projections
    down = tuple(linear for linear in inputs if linear.split == Split.NONE)
    if len(down) > 1:
        inputs = [joined("qkv_a_proj", down), *(linear for linear in inputs if linear not in down)]
    library = _library(plan, plan.kernels.latent)
    with e.scope(part="attention"):
        attention.project_latent(e, plan, att, latent, tuple(inputs), heads, style)
        if not library:
            _rotate(e, plan, att, heads, held=False)
        if plan.decode:
            absorbed(e, plan, att, latent, heads, library)
        else:
            kernel(e, plan, att, heads, bare=True, library=library)
        project(e, plan, (output,), heads.tokens)


def _library(plan: Plan, known: Mapping[tuple[Phase, bool], Kernel]) -> int:
    """Code of the engine's own kernel; 0 in models of 32 bit, for which none was published."""
    return 0 if plan.width > 2 else known.get(_cached(plan), NONE).code


def _cached(plan: Plan) -> tuple[Phase, bool]:
    return (Phase.DECODE if plan.decode else Phase.FORWARD), plan.workload.kv_cache == "fp8"


def _rotate(e: Emitter, plan: Plan, att: Attention, heads: Heads, held: bool) -> None:
    """One kernel: norms of queries and keys, rotation, write to the cache; held: the attention's own time has the last two."""
    normed = bool(att.norms) and att.latent is None
    if held and not normed:
        return
    queries = heads.q * (heads.dim if att.latent is None else att.rope_dim)
    keys = attention.cache_width(att, heads.kv)
    written = queries * plan.width + keys * (0 if held else plan.stored)
    name = "_".join(["norm"] * normed + ["rope"] * some(att.rope_dim) + ["cache"] * (not held))
    code = "rope.compiled" if some(att.rope_dim) else "copy"
    width = heads.dim if att.latent is None else att.rope_dim
    rows = heads.tokens * (queries + keys) / width
    e.memory(name, code, rows, width, heads.tokens * (queries + keys) * plan.width, heads.tokens * written)


def mixture(e: Emitter, plan: Plan, moe: Experts, style: Variant, tokens: Number) -> None:
    """Router, choice of experts, one fused layer; its ranks' sums and the shared experts' are reduced together."""
    fused = plan.kernels.fused(plan.workload.format, few=agreed(plan.tokens <= plan.kernels.few_tokens))
    with e.scope(part="moe"):
        project(e, plan, (moe.router,), tokens, plain=True)
        if not (fused.code and plan.kernels.selects(fused)):
            scores = plan.width * tokens * moe.count
            e.memory(
                "router_topk", "softmax", tokens, moe.count, scores, 8 * tokens * moe.top_k, special=tokens * moe.count
            )
        experts.enter(e, plan, moe, tokens)
        (_fused if fused.code and moe.gated else _grouped)(e, plan, moe, tokens, fused)
        experts.leave(e, plan, moe, tokens)
    if moe.shared is None:
        all_reduce(e, plan, tokens, moe.router.inputs, e.forward)
        return
    feedforward.feed_forward(e, plan, moe.shared, style, tokens)
    with e.scope(part="moe"):
        if moe.shared_gate is not None:
            project(e, plan, (moe.shared_gate,), tokens, plain=True)
            operation(e, plan, "shared_gate", SHARED_GATE, tokens, moe.router.inputs)
        operation(e, plan, "shared_add", RESIDUAL, tokens, moe.router.inputs)


def _fused(e: Emitter, plan: Plan, moe: Experts, tokens: Number, fused: Kernel) -> None:
    """The row that hwdb/kernels/grouped_gemm/published.py describes; ranks share out experts or divide their width."""
    ranks, hidden = plan.workload.expert_parallel, moe.inputs
    width, routed = moe.width // plan.workload.expert_shards, tokens * moe.top_k / ranks
    elements, hit = 3 * hidden * width, _hit(plan, moe, tokens) / ranks
    e.add(
        "experts", e.forward, Kind.GROUPED_GEMM, op=OP_CODES["fused_moe"], library=fused.code,
        precision=fused.origin.multiplies, batch=tokens, m=routed, n=width, k=hidden, groups=moe.count / ranks, heads=moe.top_k,
        kv_heads=moe.count, skew=plan.workload.expert_skew, flops=2.0 * routed * elements, executed_flops=2.0 * routed * elements,
        output_bytes=float(plan.width), bytes_written=tokens * hidden * plan.width,
        bytes_read=hit * elements * FORMATS[plan.workload.format].bytes + tokens * hidden * plan.width,
    )  # fmt: skip


def _grouped(e: Emitter, plan: Plan, moe: Experts, tokens: Number, _: Kernel) -> None:
    """Where no fused layer is known: grouped products that gather their rows themselves, and the weighted sum of a token."""
    ranks, hidden = plan.workload.expert_parallel, moe.inputs
    width, routed = moe.width // plan.workload.expert_shards, tokens * moe.top_k / ranks
    hit = _hit(plan, moe, tokens) / ranks
    size = FORMATS[plan.workload.format].bytes
    narrow: dict[str, object] = {
        "precision": plan.workload.format,
        "widths": (size, size, float(plan.width)),
        "skew": plan.workload.expert_skew,
    }
    inputs, outputs = shard(moe.expert[-1], plan.workload.expert_shards)
    e.memory("expert_order", "pointwise", routed, 1, 8 * routed, 8 * routed)
    e.grouped_gemm("gate_up_proj", routed, (1 + moe.gated) * width, hidden, hit, **narrow)  # type: ignore[arg-type]
    feedforward.activate(e, plan, moe.activation, moe.gated, routed, width, packed=moe.gated)
    e.grouped_gemm("down_proj", routed, outputs, inputs, hit, **narrow)  # type: ignore[arg-type]
    moved = routed * hidden * plan.width
    e.memory("combine", "reduce.repeat_kv_backward", tokens, hidden, moved, tokens * hidden * plan.width)


def _hit(plan: Plan, moe: Experts, tokens: Number) -> Number:
    """Experts that the tokens are expected to hit, where the r-th most chosen one's share falls as r^-expert_skew."""
    skew = plan.workload.expert_skew
    if not skew:
        return experts.distinct_experts(moe.count, moe.top_k, tokens)
    count, chosen = (np.atleast_1d(np.asarray(size))[:, None] for size in (moe.count, moe.top_k))
    place = np.arange(1, int(count.max()) + 1)
    share = np.where(place <= count, place**-skew, 0.0)
    odds = np.minimum(chosen * share / share.sum(1, keepdims=True), 1.0)
    missed = (1 - odds) ** (plan.tokens[:, None] if isinstance(plan.tokens, np.ndarray) else plan.tokens)
    hit: NDArray[np.float64] = (1 - missed).sum(1)
    return hit if any(isinstance(size, np.ndarray) for size in (moe.count, moe.top_k, plan.tokens)) else float(hit[0])


def notes(arch: Architecture, workload: Workload, known: Kernels) -> Notes:
    """What a step rests on under an engine, and which operators are not its own kernels."""
    return dict.fromkeys(_notes(arch, workload, known)) if workload.program.engine else {}


def _notes(arch: Architecture, workload: Workload, known: Kernels) -> list[str]:
    lacking = list(_lacking(arch, workload, known))
    lines = [f"stack {workload.stack}: the whole step is one CUDA graph; scheduling and sampling are left out"]
    if known.calibration:
        lines.append(f"kernels of {known.title} are those of the published calibration {known.calibration}")
    if lacking:
        lines.append(
            f"no kernel of {known.title} was published here for {', '.join(lacking)}: those are answered as without an engine"
        )
    if any(_mixtures(arch)):
        skew = workload.expert_skew
        how = f"unevenly, by rank^-{skew:g}," if skew else "evenly"
        lines.append(f"tokens are taken to be spread {how} over the experts (--expert-skew)")
        if workload.format in EXPERTS_ONLY:
            lines.append(f"{workload.precision} is the experts' format; all other products run in 16 bit")
    return lines


def _lacking(arch: Architecture, workload: Workload, known: Kernels) -> Iterator[str]:
    """Operators of this step for which the engine has no published kernel."""
    plan = planned(Plan.of(workload, known), arch)
    mixers = [mixer for stack in arch.stacks for block in stack.blocks for mixer in block.mixers]
    if plan.linear not in known.products:
        yield f"{_name(plan.linear)} products"
    if plan.plain != plan.linear and plan.plain not in known.products:
        yield f"{_name(plan.plain)} products (router, lm_head)"
    for kind in sorted({_kind(mixer) for mixer in mixers}):
        if not _library(plan, known.of(kind)):
            yield f"{kind} with {8 * plan.stored}-bit cache" if kind == "attention" else kind
    if plan.tp > 1 and not known.reduce(plan.tp):
        yield f"all-reduce of {plan.tp} GPUs"
    if any(workload.format not in known.experts or not moe.gated for moe in _mixtures(arch)):
        yield f"{workload.precision} experts (grouped products stand for the fused layer)"


def _kind(mixer: Attention | Recurrent) -> str:
    """What a mixer is called in a note; those of NAMED are an engine's own where one was published."""
    if isinstance(mixer, Recurrent):
        return "recurrent mixers"
    if mixer.indexer is not None or some(mixer.compression):
        return "sparse attention"
    if mixer.cross or not mixer.causal:
        return "encoder attention"
    if mixer.latent is not None:
        return "latent attention"
    first, *others = mixer.projections[:-1]
    return "attention" if all(same(one.inputs, first.inputs) for one in others) else "low-rank attention"


def _name(precision: Precision) -> str:
    return precision.name.lower()


def _mixtures(arch: Architecture) -> list[Experts]:
    return [
        block.feed_forward for stack in arch.stacks for block in stack.blocks if isinstance(block.feed_forward, Experts)
    ]
