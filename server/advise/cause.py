"""Why one step is faster than another: the operator that saves the most, and the cause of time that shrank in it."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

from tilewise.hwdb import packaged
from tilewise.hwdb.record import Record
from tilewise.server.step.idle import IDLE, ISSUE
from tilewise.server.step.losses import CAUSES
from tilewise.server.step.report import Operator, Report, TableReport

Told = Report | TableReport
MOST = 0.35  # of all that is saved: an operator with less is not named


class Cause(Record):
    """code: stable, as causes.toml has it; sentence: which operator, which kernel, what changed in it; no full stop."""

    code: str
    sentence: str


@cache
def causes() -> dict[str, dict[str, str]]:
    return packaged.toml("tilewise.server.advise", "causes.toml")


def why(slow: Told, fast: Told) -> Cause:
    """What makes `fast` faster than `slow`, for each token; both with operators and with a time."""
    assert slow.step.time is not None and fast.step.time is not None
    total = slow.step.time.time_s / slow.workload.tokens - fast.step.time.time_s / fast.workload.tokens
    saved = _saved(slow, fast)
    name = max(saved, key=lambda each: saved[each], default="")
    if name and total > 0 and saved[name] >= MOST * total:
        before, after = _largest(slow, name), _largest(fast, name)
        code = _operator_code(slow, fast, before, after)
        return Cause(
            code, f"{_where(before, after)} saves {_share(saved[name], total)} of it: {causes()[code]['phrase']}"
        )
    parts = {part: _lost(slow, part) - _lost(fast, part) for part in {layer.name for layer in slow.layers}}
    part = max(parts, key=lambda each: parts[each])
    if total > 0 and parts[part] >= MOST * total:
        code = _part_code(slow, fast, part)
        return Cause(code, f"{part} saves {_share(parts[part], total)} of it: {causes()[code]['phrase']}")
    code = _code(slow.step.losses, fast.step.losses, slow.workload.tokens, fast.workload.tokens)
    return Cause(code, f"all over the step, {causes()[code]['phrase']}")


def _saved(slow: Told, fast: Told) -> dict[str, float]:
    """Seconds a token that each kind of operator saves; an operator that only one of the two has belongs to no kind."""
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for at, report in enumerate((slow, fast)):
        for row in report.operators:
            totals[row.name][at] += row.total_s / report.workload.tokens
    return {name: before - after for name, (before, after) in totals.items() if before and after}


def _share(part: float, whole: float) -> str:
    return "all" if part >= 0.95 * whole else f"{part / whole:.0%}"


def _largest(report: Told, name: str) -> Operator:
    return max((row for row in report.operators if row.name == name), key=lambda row: row.total_s)


def _where(before: Operator, after: Operator) -> str:
    kernels = f", {before.kernel} -> {after.kernel}" if before.kernel != after.kernel and after.kernel else ""
    shapes = before.shape if before.shape == after.shape else f"{before.shape} -> {after.shape}"
    return f"{before.name} ({shapes}{kernels})"


def _operator_code(slow: Told, fast: Told, before: Operator, after: Operator) -> str:
    if before.kind == "attention" and before.shape.rsplit(" of ", 1)[-1] != after.shape.rsplit(" of ", 1)[-1]:
        return "HEAD_DIM"
    if before.kind == "memory":
        return "BANDWIDTH"
    return _part_code(slow, fast, before.part) if before.part == after.part else "KERNEL"


def _part_code(slow: Told, fast: Told, part: str) -> str:
    if part in (IDLE, ISSUE):
        return next(code for code, entry in causes().items() if entry.get("loss") == "launch")
    before, after = _losses(slow, part), _losses(fast, part)
    return _code(before, after, slow.workload.tokens, fast.workload.tokens) if before and after else "WORK"


def _losses(report: Told, part: str) -> tuple[float, ...]:
    return next((layer.losses for layer in report.layers if layer.name == part), ())


def _lost(report: Told, part: str) -> float:
    """Seconds a token of one kind of layer."""
    return sum(_losses(report, part)) / report.workload.tokens


def _code(before: tuple[float, ...], after: tuple[float, ...], tokens_before: int, tokens_after: int) -> str:
    """The code of the cause of time that shrank the most for each token."""
    shrunk = [old / tokens_before - new / tokens_after for old, new in zip(before, after, strict=True)]
    loss = CAUSES[max(range(len(CAUSES)), key=lambda at: shrunk[at])]
    return next(code for code, entry in causes().items() if entry.get("loss") == loss)
