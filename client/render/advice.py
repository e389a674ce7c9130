"""Advice as text: the model as it is, then a table a kind of advice, each line with its reason, and the one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import indent, wrap

from tilewise.client.render.report import asked_line
from tilewise.client.render.text import gib, interval, percent, seconds, si, significant, table
from tilewise.server.messages.words import word
from tilewise.v1.advice_pb2 import (
    AdviceKind,
    Baseline,
    Effect,
    GainVerdict,
    Recommendation,
    RecommendRequest,
    RecommendResponse,
)

TITLES = {
    AdviceKind.ADVICE_KIND_EXECUTION: "the same model, run in another way",
    AdviceKind.ADVICE_KIND_FREE_WIN: "free wins: one size, by gain for each parameter",
    AdviceKind.ADVICE_KIND_RESHAPE: "re-shapes: several sizes together, the parameters kept",
    AdviceKind.ADVICE_KIND_PRECISION: "number formats of the linear layers",
}
WIDTH = 118
LONGER = 1.01  # a step's time after over before: below it the change is not told


def advice_text(request: RecommendRequest, answer: RecommendResponse) -> str:
    """The whole answer; ends with a line break."""
    many = len(answer.baseline) > 1
    sections = ["\n".join(baseline_lines(request, answer))]
    for kind, title in TITLES.items():
        found = [each for each in answer.recommendations if each.kind == kind]
        if found:
            sections.append(f"{title}\n\n{kind_table(found, many)}")
    if answer.candidate_count:
        sections.append(
            f"{answer.candidate_count:,} re-shapes were predicted. What a change does to quality is not predicted."
        )
    if answer.notes:
        sections.append(
            "\n".join("\n".join(wrap(f"note: {note}", WIDTH, subsequent_indent="      ")) for note in answer.notes)
        )
    return "\n\n".join([*sections, answer.summary]) + "\n"


def baseline_lines(request: RecommendRequest, answer: RecommendResponse) -> Iterator[str]:
    yield f"{request.model.name}, as it is:"
    for each in answer.baseline:
        yield f"  {each.gpu}, {workload_line(request, each.workload)}"
        yield f"    {step_line(each)}"


def workload_line(request: RecommendRequest, at: int) -> str:
    weight = f", weight {significant(request.workloads[at].weight or 1)}" if len(request.workloads) > 1 else ""
    return f"{asked_line(request.workloads[at].workload)}{weight}"


def step_line(each: Baseline) -> str:
    step, time = each.step, each.step.prediction
    energy = f", {si(step.energy_j, 'J')} a step" if step.HasField("energy_j") else ""
    bounds = interval(time.time_low_s, time.time_s, time.time_high_s)
    return f"{bounds}, {significant(step.tokens_per_s)} tokens/s, MFU {percent(step.mfu)}, {gib(each.memory.total_bytes)}{energy}"


def kind_table(found: Sequence[Recommendation], many: bool) -> str:
    """One line an effect, and under the lines of a change why it helps and what it costs."""
    cost = "GPU-s a token" if any(map(splits, found)) else "time a token"
    header = ("change", *(("on",) if many else ()), cost, "90 % interval", "energy", "step", "verdict")
    blocks = [change_rows(each, many) for each in found]
    first = 2 if many else 1
    head, *lines = table(header, [row for block in blocks for row in block], right=range(first, first + 4)).split("\n")
    told = [head]
    for each, block in zip(found, blocks, strict=True):
        told += [lines.pop(0) for _ in block]
        told.append(indent("\n".join(wrap(f"{each.cause}: {each.message}", WIDTH - 4)), "    "))
    return "\n".join(told)


def change_rows(found: Recommendation, many: bool) -> list[tuple[str, ...]]:
    """Its changes below one another, beside them its effects; of several the total, which the verdict is about."""
    verdict = word(GainVerdict.DESCRIPTOR, found.verdict).replace("_", " ")
    if splits(found):
        verdict = {"faster": "cheaper", "slower": "dearer"}.get(verdict, verdict)
    changes = [f"{each.field} {getattr(each, 'from')} -> {each.to}" for each in found.changes]
    effects = [(*((place(effect),) if many else ()), *effect_cells(effect)) for effect in found.effects]
    if len(effects) > 1:
        effects.append(("in all", *total_cells(found)))
    empty = ("",) * len(effects[0])
    pairs = list(zip_longest(changes, effects, fillvalue=None))
    verdicts = [verdict, *[""] * (len(pairs) - 1)]
    return [(change or "", *(cells or empty), last) for (change, cells), last in zip(pairs, verdicts, strict=True)]


def place(effect: Effect) -> str:
    return effect.gpu if effect.workload == 0 else f"{effect.gpu}, workload {effect.workload + 1}"


def effect_cells(effect: Effect) -> tuple[str, ...]:
    low, high = difference(effect.time_ratio_low), difference(effect.time_ratio_high)
    energy = difference(effect.energy_ratio) if effect.HasField("energy_ratio") else "-"
    return difference(effect.time_ratio), f"{low} to {high}", energy, step_cell(effect)


def step_cell(effect: Effect) -> str:
    """The step's time after the change; where it is longer than before, both."""
    after = seconds(effect.prediction.time_s)
    if effect.step_time_ratio <= LONGER:
        return after
    return f"{seconds(effect.prediction.time_s / effect.step_time_ratio)} -> {after}"


def total_cells(found: Recommendation) -> tuple[str, ...]:
    low, high = difference(found.total_ratio_low), difference(found.total_ratio_high)
    return difference(found.total_ratio), f"{low} to {high}", "", ""


def splits(found: Recommendation) -> bool:
    """Whether it changes how many GPUs share the model: then cost and time part."""
    return any(change.field == "tensor_parallel" for change in found.changes)


def difference(ratio: float) -> str:
    """0.953 -> '-4.7 %'."""
    return f"{100 * (ratio - 1):+.1f} %"
