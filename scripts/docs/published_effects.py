"""What others measured when they changed one thing (published_effects.toml), and what Tilewise says of the same change."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import OutOfRange, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.table import Kind
from tilewise.hwdb.times import Wall
from tilewise.server.architecture import read_with
from tilewise.server.architecture.model import Linear
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.linear import project
from tilewise.server.operators.plan import Plan
from tilewise.server.step.predict import predict, predict_table
from tilewise.server.step.ratio import ratio_of
from tilewise.server.step.report import Report, TableReport
from tilewise.server.workload import Workload

FACTS = tomllib.loads((Path(__file__).parent / "published_effects.toml").read_text(encoding="utf-8"))
DATABASE = Database.packaged()
H100 = "h100-sxm5-80gb"
TORCH = {"stack": "transformers"}  # no effect is a serving engine's
OF_WORKLOAD = set(Workload.__struct_fields__)


@dataclass(frozen=True, slots=True)
class Effect:
    """factor: theirs, before over after; ours, low, high: ours with its 90 % interval (None where it has none, or was refused).

    note: why the two differ in size; differs: they point different ways, which is known and told
    """

    id: str
    says: str
    factor: float
    on: str
    note: str
    differs: bool
    ours: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def agrees(self) -> bool:
        """Whether ours points the same way: a gain for a gain, and no more than a tenth for next to nothing."""
        if self.ours is None:
            return False
        if abs(self.factor - 1) <= 0.1:
            return abs(self.ours - 1) <= 0.1
        return (self.ours > 1) == (self.factor > 1)


@dataclass(frozen=True, slots=True)
class Time:
    """us: between these bounds it should lie; ours_us, wall: what is predicted."""

    id: str
    says: str
    us: tuple[float, float]
    ours_us: float
    wall: str


def effects() -> Iterator[Effect]:
    for fact in FACTS["effect"]:
        skus = fact.get("on", [H100, H100])
        shown = skus[0] if skus[0] == skus[1] else " -> ".join(skus)
        shared = fact["id"], fact["says"], fact["factor"], shown, fact.get("note", ""), fact.get("differs", False)
        try:
            yield Effect(*shared, *ratio(fact, [DATABASE.gpu(sku) for sku in skus]))
        except TilewiseError as error:
            yield Effect(*shared, None, reason=error.message)


def ratio(fact: Mapping[str, Any], gpus: list[Gpu]) -> tuple[float, float | None, float | None]:
    """Ours, before over after, with its interval where it is that of a whole step on one GPU."""
    sides = [asked(fact, side, gpu) for side, gpu in zip(("before", "after"), gpus, strict=True)]
    if "model" not in fact:
        before, after = (table_time(side) for side in sides)
        return before / after, None, None
    reports = [side for side in sides if isinstance(side, Report)]
    before, after = (seconds(report, fact) for report in reports)
    if fact.get("of", "step") != "step" or gpus[0].sku.name != gpus[1].sku.name:
        return before / after, None, None
    low, middle, high = ratio_of(gpus[0], *reports)
    return before / after, before / after * middle / high, before / after * middle / low


def asked(fact: Mapping[str, Any], side: str, gpu: Gpu) -> Report | TableReport:
    changed = fact.get(side, {})
    fields = {name: value for name, value in changed.items() if name in OF_WORKLOAD}
    sizes = {name: value for name, value in changed.items() if name not in OF_WORKLOAD}
    work = Workload(**{**TORCH, **fact["work"], **fields})
    if "model" in fact:
        return predict(gpu, read_with(json.dumps(FACTS[fact["model"]]), sizes), work)
    return alone(gpu, *fact["linear"][side], work)


def alone(gpu: Gpu, inputs: int, outputs: int, work: Workload) -> TableReport:
    """One matrix product by itself, with the casts of its format; in training with its two gradients."""
    plan = Plan.of(work)
    emitter = Emitter(plan.plain)
    with emitter.scope(layer="linear", part="mlp", count=1):
        project(emitter, plan, (Linear(name="linear", inputs=inputs, outputs=outputs),), plan.tokens)
    return predict_table(gpu, emitter.table(), work)


def table_time(report: Report | TableReport) -> float:
    if report.step.time is None:
        raise OutOfRange(report.step.refusal, reason="OUT_OF_RANGE")
    return report.step.time.time_s


def seconds(report: Report, fact: Mapping[str, Any]) -> float:
    """Time of the step, of a kind of layer, or of its attention kernels; a token or a FLOP."""
    of = fact.get("of", "step")
    if of == "step":
        time = table_time(report)
    elif fact.get("operator"):
        time = sum(row.total_s for row in report.operators if row.kind == Kind.ATTENTION.name.lower())
    else:
        time = sum(layer.time.time_s for layer in report.layers if layer.name == of)
    work = {"flop": report.step.flops["causal"], "step": 1, "token": report.workload.tokens}
    return time / work[fact.get("per", "token")]


def times() -> Iterator[Time]:
    for fact in FACTS["time"]:
        report = alone(DATABASE.gpu(H100), *fact["linear"], Workload(**{**TORCH, **fact["work"]}))
        (row,) = (row for row in report.operators if row.kind == "gemm")
        yield Time(fact["id"], fact["says"], tuple(fact["us"]), 1e6 * row.time.time_s, Wall(row.wall).name.lower())


def table() -> str:
    """The table of docs/advice.md."""
    return "\n".join(lines())


def lines() -> Iterator[str]:
    yield "| | what was changed | theirs | ours | 90 % interval | on | |"
    yield "|---|---|--:|--:|--:|---|---|"
    for each in effects():
        ours = "-" if each.ours is None else f"{each.ours:.2f}"
        bounds = f"{each.low:.2f}-{each.high:.2f}" if each.low is not None and each.high is not None else "-"
        note = f"refused: {each.reason}" if each.reason else each.note
        yield f"| {each.id} | {each.says} | {each.factor:.2f} | {ours} | {bounds} | {each.on} | {note} |"
    for time in times():
        theirs, ours = f"{time.us[0]:g}-{time.us[1]:g} us", f"{time.ours_us:.1f} us"
        yield f"| {time.id} | {time.says} | {theirs} | {ours} | - | {H100} | {time.wall}-bound |"
    for id, reason in FACTS["unanswered"].items():
        yield f"| {id} | not asked | - | - | - | - | {reason} |"
