"""validate: a measured table in, predicted against measured out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats
from tilewise.hwdb.times import State
from tilewise.server.validate import attention, collective, gemm, grouped, memory, models, rules, software
from tilewise.server.validate.asked import Answers, Asked, answers
from tilewise.server.validate.outcome import Outcome, Quantity
from tilewise.server.validate.sheet import Sheet, Words, formats, read

OPERATORS: dict[str, Callable[[Sheet, list[str]], Asked]] = {
    "gemm": gemm.ask,
    "attention": attention.ask,
    "mla": attention.ask_latent,
    "experts": grouped.ask_experts,
    "grouped_gemm": grouped.ask_points,
    "moe": grouped.ask_layers,
    "memory": memory.ask,
    "traffic": memory.ask_traffic,
    "quantize": memory.ask_quantize,
    "bandwidth": memory.ask_bandwidth,
    "collective": collective.ask,
}
STEADY = 0.05
MODELS = {"models": models.judge_steps, "train_memory": models.judge_memory}


class Validation(Record, kw_only=True):
    """A table, what came of it, and which GPU and calibration ("" for none) answered."""

    sheet: Sheet
    outcome: Outcome
    gpu: str
    calibration: str


def validate(text: str, name: str, gpu: Gpu, configs: models.Configs, database: Database | None = None) -> Validation:
    """Predict every row of the CSV `text` and set the predictions beside what was measured.

    configs: the text of a model's config.json by the model's name, None where there is none.
    Raises InvalidInput: UNKNOWN_TABLE, BAD_TABLE, CONFIG_MISSING.
    """
    sheet = read(text, name)
    sheet = replace(sheet, library=software.codes(sheet, gpu))
    found = rules.reasons(sheet, gpu, database or Database.packaged())
    rules.explain(
        found, np.full(len(sheet), "skip" in formats()[sheet.format]), formats()[sheet.format].get("skip", "")
    )
    if sheet.format in MODELS:
        outcome = MODELS[sheet.format](gpu, sheet, found, configs)
    elif sheet.format in OPERATORS:
        heavy_s = np.where(
            sheet.named > 0, np.inf, formats()[sheet.format].get("heavy_s", np.inf)
        )  # published are bursts
        outcome = _judged(gpu, OPERATORS[sheet.format](sheet, found), heavy_s)
    else:
        outcome = _skipped(found)
    outcome = software.widened(outcome, software.other_release(sheet, gpu), sheet.format)
    if sheet.has("spread"):
        outcome = replace(outcome, groups={**outcome.groups, "windows": _agreement(sheet)})
    calibration = gpu.answers_by
    return Validation(sheet=sheet, outcome=outcome, gpu=gpu.sku.name, calibration=calibration)


def _judged(gpu: Gpu, asked: Asked, heavy_s: Floats) -> Outcome:
    """Operators in a burst, sustained from heavy_s on (one a row), and sustained too where a row has such a time."""
    fair = asked.reasons == ""
    burst = answers(gpu, asked, State.BURST, fair)
    heavy = burst.time_s >= heavy_s
    if heavy.any():
        burst = burst.replaced(heavy, answers(gpu, asked, State.SUSTAINED, heavy))
    quantities = [_quantity("time", asked.time_s, burst)]
    steady = fair & np.isfinite(asked.sustained_s)
    if steady.any():
        quantities.append(_quantity("sustained time", asked.sustained_s, answers(gpu, asked, State.SUSTAINED, steady)))
    return Outcome(
        quantities=tuple(quantities),
        walls=burst.wall,
        reasons=np.where(fair, burst.refusal, asked.reasons),
        refused=fair & (burst.refusal != ""),
        groups={way: words for way, words in asked.groups.items() if (words != "").any()},
    )


def _agreement(sheet: Sheet) -> Words:
    """Whether the windows of a row agreed, by the relative spread that the table states."""
    within = sheet.number("spread") <= STEADY
    return np.where(within, f"agree within {STEADY:.0%}", "do not")


def _quantity(name: str, measured_s: np.ndarray, answer: Answers) -> Quantity:
    return Quantity(name, "s", measured_s, answer.time_s, answer.low_s, answer.high_s)


def _skipped(found: list[str]) -> Outcome:
    length = len(found)
    nothing = np.full(length, np.nan)
    return Outcome(
        quantities=(Quantity("time", "s", nothing, nothing, nothing, nothing),), walls=np.full(length, ""),
        reasons=np.array(found), refused=np.zeros(length, bool), groups={},
    )  # fmt: skip
