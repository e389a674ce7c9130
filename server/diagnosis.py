"""What bounds a step, how to recognise it, and what helps: each remedy predicted with its change, none from a list of gains."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.launch import MODES
from tilewise.hwdb.times import Wall
from tilewise.server.architecture.model import Architecture, Experts
from tilewise.server.predict import predict
from tilewise.server.report import Report, Step
from tilewise.server.summary import SHARED
from tilewise.server.workload import Workload

ALIGNED = 64  # elements: 128 bytes of a 16-bit operand, a whole swizzle and a whole line of memory
BATCHES = (2, 4, 8)
Reread = Callable[[Mapping[str, int]], Architecture]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change, predicted.

    kind:   "compile", "graph", "batch", "alignment", "precision", "recompute" or "parallelism"
    change: what changes, "mode compiled", "vocab_size 50257 -> 50304"
    step:   the step with the change
    gain:   of tokens a second and GPU over the step as it is: 0.1 is 10 % more; with the bounds of a 90 % interval
    memory_bytes: peak of the changed step; every remedy listed fits
    """

    kind: str
    change: str
    step: Step
    gain: float
    gain_low: float
    gain_high: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """regime: as of the step; signs: how it shows on the machine; remedies: the largest gain first, useless ones too."""

    regime: str
    signs: tuple[str, ...]
    remedies: tuple[Remedy, ...]


def diagnose(gpu: Gpu, report: Report, reread: Reread) -> Diagnosis:
    """Re-predicts the step of `report` with each change that applies to it.

    reread: reads the same model again with sizes replaced by their canonical names (raises InvalidInput where it cannot)
    A change that the GPU, the model or its memory does not allow is left out; a step without a time has no remedies.
    """
    if report.step.time is None:
        return Diagnosis(report.step.regime, (), ())
    found = [remedy for remedy in _remedies(gpu, report, reread) if remedy is not None]
    best: dict[tuple[str, str], Remedy] = {}
    for remedy in sorted(found, key=lambda remedy: -remedy.gain):
        size = remedy.change.split()[0] if remedy.kind == "alignment" else ""
        best.setdefault((remedy.kind, size), remedy)
    return Diagnosis(report.step.regime, signs(gpu, report), tuple(best.values()))


def _remedies(gpu: Gpu, report: Report, reread: Reread) -> Iterator[Remedy | None]:
    arch, work = report.architecture, report.workload
    for mode in MODES[MODES.index(work.mode) + 1 :]:
        kind = {"compiled": "compile", "graph": "graph"}[mode]
        yield _tried(gpu, report, kind, f"mode {mode}", arch, {"mode": mode})
    for times in BATCHES:
        change = f"batch {work.batch} -> {work.batch * times}"
        yield _tried(gpu, report, "batch", change, arch, {"batch": work.batch * times})
    if not work.quantized:
        yield _tried(gpu, report, "precision", f"precision {work.precision} -> fp8", arch, {"precision": "fp8"})
    if work.recompute != "none":
        yield _tried(gpu, report, "recompute", f"recompute {work.recompute} -> none", arch, {"recompute": "none"})
    if work.tensor_parallel > 1 and work.tensor_parallel % 2 == 0:
        fewer = work.tensor_parallel // 2
        change = f"tensor_parallel {work.tensor_parallel} -> {fewer}"
        yield _tried(gpu, report, "parallelism", change, arch, {"tensor_parallel": fewer})
    for name, size in _odd_sizes(arch, work.tensor_parallel):
        unit = ALIGNED * work.tensor_parallel
        aligned = -(-size // unit) * unit
        try:
            changed = reread({name: aligned})
        except InvalidInput:  # the family ties this size to another one
            continue
        yield _tried(gpu, report, "alignment", f"{name} {size} -> {aligned}", changed, {})


def _odd_sizes(arch: Architecture, shards: int) -> Iterator[tuple[str, int]]:
    """Sizes that padding leaves a model's meaning alone and that are no multiple of ALIGNED on every GPU."""
    sizes: dict[str, int] = {}
    if arch.head is not None:
        sizes["vocab_size"] = int(arch.vocab)
    for block in arch.stacks[-1].blocks:
        if block.feed_forward is not None:
            name = "moe_intermediate_size" if isinstance(block.feed_forward, Experts) else "intermediate_size"
            sizes[name] = int(block.feed_forward.width)
    return ((name, size) for name, size in sizes.items() if size % (ALIGNED * shards))


def _tried(
    gpu: Gpu, report: Report, kind: str, change: str, arch: Architecture, changes: Mapping[str, Any]
) -> Remedy | None:
    """The remedy; None where it is impossible, refused or does not fit (and the step as it is does)."""
    try:
        workload: Workload = replace(report.workload, **changes)
        after = predict(gpu, arch, workload, detailed=False)
    except (InvalidInput, NotAvailable):
        return None
    if after.step.time is None or (report.fits and not after.fits):
        return None
    ratio = _rate(after) / _rate(report)
    margin = _margin(report, after)
    return Remedy(
        kind=kind,
        change=change,
        step=after.step,
        gain=ratio - 1,
        gain_low=ratio / margin - 1,
        gain_high=ratio * margin - 1,
        memory_bytes=int(after.memory.total_bytes),
    )


def _rate(report: Report) -> float:
    """Tokens a second and GPU."""
    return (report.step.tokens_per_s or 0.0) / report.workload.tensor_parallel


def _margin(before: Report, after: Report) -> float:
    """Half-width of the ratio's 90 % interval as a factor: what both steps' intervals do not share (summary.SHARED)."""
    widths = [0.5 * math.log(time.high_s / time.low_s) for report in (before, after) if (time := report.step.time)]
    return math.exp(math.sqrt((1 - SHARED) * sum(width**2 for width in widths)))


@cache
def _regimes() -> dict[str, Any]:
    return tomllib.loads((files("tilewise.server") / "regimes.toml").read_text(encoding="utf-8"))


def signs(gpu: Gpu, report: Report) -> tuple[str, ...]:
    """How the step's regime shows, with its own figures."""
    step = report.step
    assert step.time is not None
    time = step.time.time_s
    figures = {
        "busy_share": step.busy.time_s / time,
        "idle_share": 1 - step.busy.time_s / time,
        "compute_share": (step.walls[Wall.COMPUTE] + step.walls[Wall.SPECIAL_FUNCTION]) / time,
        "bandwidth_share": step.walls[Wall.MEMORY] / time,
        "communication_share": step.walls[Wall.COMMUNICATION] / time,
        "intensity": step.executed_flops / step.memory_bytes,
        "ridge": step.peak.flops_per_s / gpu.sku.hbm_bytes_per_s,
        "gigabytes": step.memory_bytes / 1e9,
        "mbu": step.mbu,
        "launches": step.launches,
        "mean_us": 1e6 * step.busy.time_s / step.launches,
        "issue_ms": 1e3 * step.issue_s,
        "busy_ms": 1e3 * step.busy.time_s,
    }
    return tuple(sign.format(**figures) for sign in _regimes()[step.regime]["signs"])
