"""Tables of whole models: the time of a step, and the memory that training needs at its peak."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.table import Floats
from tilewise.server.architecture import read_with
from tilewise.server.architecture.model import Architecture
from tilewise.server.step.predict import predict
from tilewise.server.step.report import Interval, Report
from tilewise.server.validate.outcome import Outcome, Quantity
from tilewise.server.validate.sheet import Sheet, facts
from tilewise.server.workload import Workload

MS, MIB = 1e-3, float(2**20)
Configs = Callable[[str], str | None]


def judge_steps(gpu: Gpu, sheet: Sheet, found: list[str], configs: Configs) -> Outcome:
    """[models]: GPU busy time and wall time of one call, without optimizer; long calls at the clock they settle at.

    The referee calls a step `calls` times in a row; where that lasts longer than the power governor takes to act, the
    step is asked as sustained (formats.toml, [run]).
    """
    reports = step_reports(gpu, sheet, found, configs)
    busy = [report.step.busy if report else None for report in reports]
    wall = [report.step.time if report else None for report in reports]
    launched = np.array([report.step.launches if report else np.nan for report in reports])
    return Outcome(
        quantities=(
            _quantity("wall time", MS * sheet.number("wall_ms"), wall),
            _quantity("busy time", MS * sheet.number("busy_ms"), busy),
            Quantity("kernels", "", sheet.number("kernels"), launched, launched, launched),
        ),
        walls=_walls(reports),
        reasons=np.array(found),
        refused=_refused(found, reports),
        groups={
            "phase": np.char.add(np.char.add(sheet.words("mode", "mode"), " "), sheet.text("phase")),
            "model": sheet.text("model"),
            "tokens": np.where(_tokens(sheet) >= 2048, "2048 tokens or more", "fewer"),
        },
    )


def step_reports(gpu: Gpu, sheet: Sheet, found: list[str], configs: Configs) -> list[Report | None]:
    """The prediction of each row of [models], None where `found` says why there is none."""
    short, steady = list(found), list(found)
    reports = _reports(gpu, sheet, short, configs, {"optimizer": "none", "state": "burst"})
    settled = _reports(gpu, sheet, steady, configs, {"optimizer": "none", "state": "sustained"})
    run = facts()["run"]
    for row, report in enumerate(reports):
        if report and report.step.time and run["calls"] * report.step.time.time_s >= run["heavy_s"]:
            reports[row], short[row] = settled[row], steady[row]
    found[:] = short
    return reports


def judge_memory(gpu: Gpu, sheet: Sheet, found: list[str], configs: Configs) -> Outcome:
    """[train_memory]: the allocator's peak over a step with AdamW; the step's time from a cool start and sustained."""
    peaks = sheet.number("peak_mib")
    burst = _reports(gpu, sheet, found, configs, {"phase": "train", "state": "burst"})
    steady = _reports(gpu, sheet, found, configs, {"phase": "train", "state": "sustained"})
    predicted = np.array([report.memory.total_bytes if report else np.nan for report in burst], float)
    first = MS * sheet.number("time_ms")
    return Outcome(
        quantities=(
            Quantity("peak memory", "bytes", peaks * MIB, predicted, predicted, predicted),
            _quantity("wall time", first, [report.step.time if report else None for report in burst]),
            _quantity(
                "sustained time", MS * sheet.number("sustained_ms"), [r.step.time if r else None for r in steady]
            ),
        ),
        walls=_walls(burst),
        reasons=np.array(found),
        refused=_refused(found, burst),
        groups={
            "recompute": np.where(sheet.number("recompute") > 0, "full", "none"),
            "model": sheet.text("model"),
        },
    )


def _reports(
    gpu: Gpu, sheet: Sheet, found: list[str], configs: Configs, fixed: Mapping[str, str]
) -> list[Report | None]:
    """One prediction a row; where there is none, the reason is written into `found`."""
    reports: list[Report | None] = []
    texts = {name: configs(name) for name in sorted(set(sheet.text("model").tolist()))}
    missing = sorted(name for name, text in texts.items() if text is None)
    if len(missing) == len(texts):
        message = f"{sheet.name} names models; --configs must hold {missing[0]}.json and its like"
        raise InvalidInput(message, reason="CONFIG_MISSING", field="configs")
    for row in range(len(sheet)):
        text = texts[str(sheet.text("model")[row])]
        if not found[row] and text is None:
            found[row] = f"no {sheet.text('model')[row]}.json among the configs"
        reports.append(None if found[row] or text is None else _report(gpu, sheet, row, found, text, fixed))
    return reports


def _report(gpu: Gpu, sheet: Sheet, row: int, found: list[str], text: str, fixed: Mapping[str, str]) -> Report | None:
    try:
        workload = _workload(sheet, row, fixed)
        layers = int(sheet.number("layers")[row])
        overrides = {"num_hidden_layers": layers}
        architecture = read_with(of_depth(text, layers), overrides, str(sheet.text("model")[row]))
        if workload.phase == "prefill" and architecture.model_type in facts()["trunk"]["prefill"]:
            architecture = _trunk(architecture)
        report = predict(gpu, architecture, workload, detailed=False)
    except TilewiseError as error:
        found[row] = error.message
        return None
    found[row] = report.step.refusal
    return report


def _workload(sheet: Sheet, row: int, fixed: Mapping[str, str]) -> Workload:
    """What a row ran: prefill keeps no cache, decode has `s` or `context` tokens in it; checkpointing is full recompute."""
    phase = fixed.get("phase") or str(sheet.text("phase")[row])
    options: dict[str, object] = {"state": fixed["state"]}
    if phase == "decode":
        options["context"] = int(sheet.number("context" if sheet.text("s")[row] == "" else "s")[row])
    else:
        options |= {"sequence": int(sheet.number("s")[row]), "cache": "none"}
    if phase == "train":
        options["optimizer"] = fixed.get("optimizer", "adamw")
        options["recompute"] = "full" if sheet.number("recompute", 0)[row] > 0 else "none"
    return Workload(
        phase=phase,
        stack="transformers",  # whose steps such tables hold
        batch=int(sheet.number("b")[row]),
        mode=str(sheet.words("mode", "mode", "eager")[row]),
        **options,  # type: ignore[arg-type]
    )


def of_depth(text: str, layers: int) -> str:
    """A config.json whose lists with an entry a layer have `layers` entries: cut, or repeated in their order."""
    try:
        raw = json.loads(text)
    except ValueError:
        return text  # not JSON: the reader says what it thinks of it
    levels = (raw, raw.get("text_config")) if isinstance(raw, dict) else ()
    for level in levels:
        if not isinstance(level, dict):
            continue
        for key in facts()["depth"]["lists"]:
            listed = level.get(key)
            if isinstance(listed, list | str) and 0 < len(listed) != layers:
                level[key] = (listed * -(-layers // len(listed)))[:layers]
    return json.dumps(raw)


def _trunk(architecture: Architecture) -> Architecture:
    """A model without its head."""
    return replace(architecture, head=None, head_norms=(), head_linears=())


def _quantity(name: str, measured_s: Floats, times: list[Interval | None]) -> Quantity:
    nothing = (np.nan, np.nan, np.nan)
    columns = np.array([(time.time_s, time.low_s, time.high_s) if time else nothing for time in times], float)
    return Quantity(name, "s", measured_s, *columns.reshape(-1, 3).T)


def _walls(reports: list[Report | None]) -> np.ndarray:
    return np.array([report.step.wall.name.lower() if report and report.step.time else "" for report in reports])


def _refused(found: list[str], reports: list[Report | None]) -> np.ndarray:
    """Rows that were asked and got no time; the others with a reason were not asked."""
    return np.array([bool(why and report) for why, report in zip(found, reports, strict=True)], bool)


def _tokens(sheet: Sheet) -> Floats:
    tokens: Floats = sheet.number("b") * sheet.number("s")
    return tokens
