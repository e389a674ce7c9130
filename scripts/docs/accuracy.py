"""The accuracy tables of docs/accuracy.md and of the README: `tilewise validate` over tables that nothing was fitted to."""

import csv
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.client.render.text import percent
from tilewise.client.render.validation import counted
from tilewise.hwdb.database import Database
from tilewise.server.validate.outcome import Errors, Quantity, errors, grouped, picked
from tilewise.server.validate.validate import Validation, validate

ROOT = Path(__file__).resolve().parents[2]
RULES = tomllib.loads((ROOT / "scripts" / "docs" / "accuracy.toml").read_text(encoding="utf-8"))
HEADER = "| | points | mean error | median | p90 | bias | 90 % interval covers | its width |\n|---|--:|--:|--:|--:|--:|--:|--:|"


def summary(shared: Path) -> str:
    """The README's table: the lines marked `readme`, the GPUs side by side."""
    found = validations(shared)
    errors = {sku: dict(headlines(tables)) for sku, tables in found.items()}
    titles = "".join(f" {sku}: points | mean error | 90 % interval covers |" for sku in found)
    lines = [f"| |{titles}", "|---|" + "--:|" * 3 * len(found)]
    for rule in RULES["headline"]:
        if rule.get("readme"):
            lines.append(f"| {rule['label']} |" + "".join(_short(errors[sku].get(rule["label"])) for sku in found))
    return "\n".join(lines)


def _short(error: Errors | None) -> str:
    if error is None:
        return " - | - | - |"
    covered = "-" if error.covered is None else percent(error.covered)
    return f" {error.points} | {percent(error.mean)} | {covered} |"


@cache
def validations(shared: Path) -> dict[str, dict[str, Validation]]:
    """Every table of the rules, by SKU and by its name in them."""
    return {rule["sku"]: dict(_validated(rule, shared)) for rule in RULES["gpu"]}


def _validated(rule: dict[str, Any], shared: Path) -> Iterator[tuple[str, Validation]]:
    gpu = Database.packaged().gpu(rule["sku"])
    folder = next(root / rule["folder"] for root in (ROOT, shared) if (root / rule["folder"]).is_dir())
    texts = {each.stem: each.read_text(encoding="utf-8") for each in (folder / "configs").glob("*.json")}
    for name, file in rule["tables"].items():
        yield name, validate((folder / file).read_text(encoding="utf-8"), file, gpu, texts.get)


def headlines(found: dict[str, Validation]) -> list[tuple[str, Errors | None]]:
    """The lines that sum a GPU's tables up."""
    lines = []
    for rule in RULES["headline"]:
        if rule["table"] in found:
            outcome = found[rule["table"]].outcome
            quantity = next(each for each in outcome.quantities if each.name == rule["quantity"])
            lines.append((rule["label"], errors(quantity, picked(outcome, rule.get("rows", {})))))
    return lines


def line(label: str, error: Errors | None) -> str:
    if error is None:
        return f"| {label} | 0 | - | - | - | - | - | - |"
    interval = ["-" if share is None else percent(share) for share in (error.covered, error.width)]
    figures = [percent(error.mean), percent(error.median), percent(error.p90), f"{100 * error.bias:+.1f} %", *interval]
    return f"| {label} | {error.points} | {' | '.join(figures)} |"


def headline_tables(shared: Path) -> str:
    """The lines that sum each GPU's tables up, with what its predictions rest on."""
    found = validations(shared)
    return "\n\n".join(_headline_table(rule, found[rule["sku"]]) for rule in RULES["gpu"])


def _headline_table(rule: dict[str, Any], found: dict[str, Validation]) -> str:
    calibration = next(iter(found.values())).calibration
    basis = f"calibration {calibration}" if calibration else "datasheets and published ceilings, no calibration yet"
    rows = "\n".join(line(label, error) for label, error in headlines(found))
    return f"{rule['summary'].strip()} Predictions rest on {basis}.\n\n{HEADER}\n{rows}"


PROGRAMS = ROOT / "tests" / "accuracy" / "measured" / "programs"
# the files' ends, and the card that was measured
RUNS = {"": "h100-sxm5-80gb", **dict.fromkeys(("-2", "-3", "-4"), "h200-sxm-141gb")}
Case = tuple[str, str, str, str]  # run, card, mode and phase


def programs(shared: Path) -> str:
    """Busy times of models that were measured after they were predicted, by run, mode and phase, as predicted then."""
    lines = [
        "| run | card | mode | phase | steps | mean error | worst | 90 % interval covers |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    busy, cases = _programs()
    for case in dict.fromkeys(cases):
        rows = np.array([each == case for each in cases])
        mean, inside = _mean_and_inside(busy, rows)
        worst = percent(float(np.abs(busy.ratio[rows] - 1).max()))
        lines.append(f"| {' | '.join(case)} | {rows.sum()} | {mean} | {worst} | {inside} |")
    return "\n".join(lines)


def programs_line(shared: Path) -> str:
    """The README's sentence about them."""
    mean, inside = _mean_and_inside(_programs()[0])
    return (
        f"Twenty models predicted, then measured, eager, compiled and as graphs, in training, prefill and decode: {mean} off "
        f"on average, {inside} busy times inside their interval."
    )


def _mean_and_inside(busy: Quantity, rows: NDArray[np.bool_] | None = None) -> tuple[str, str]:
    found = errors(busy, rows)
    assert found is not None and found.covered is not None
    return percent(found.mean), f"{found.covered * found.points:.0f} of {found.points}"


def _programs() -> tuple[Quantity, list[Case]]:
    """Busy times, and the run, card, mode and phase of each."""
    known, measured, cases = [], [], []
    for end, card in RUNS.items():
        before = {
            (row["model"], row["mode"], row["phase"]): row for row in _rows(f"predicted{end}.csv") if row["gpu"] == card
        }
        for row in _rows(f"steps{end}.csv"):
            known.append(before[row["model"], row["mode"], row["phase"]])
            measured.append(float(row["busy_ms"]))
            cases.append((end[1:] or "1", card, row["mode"], row["phase"]))
    columns = (np.array([float(row[name]) for row in known]) for name in ("busy_ms", "low_ms", "high_ms"))
    return Quantity("busy time", "ms", np.array(measured), *columns), cases


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((PROGRAMS / name).read_text(encoding="utf-8").splitlines()))


def groups(shared: Path) -> str:
    """Every group of every table."""
    parts = []
    for sku, tables in validations(shared).items():
        parts += [f"# {sku}", _held_out(sku), *map(section, tables.values())]
    return "\n\n".join(part.strip() for part in parts if part)


def section(one: Validation) -> str:
    counts = counted(one.outcome)
    lines = [
        f"## {one.sheet.name}: {one.sheet.title}",
        "",
        f"{counts['rows']} rows: {counts['judged']} judged, {counts['refused']} refused, {counts['skipped']} skipped.",
    ]
    for quantity in one.outcome.quantities:
        overall = errors(quantity)
        if overall is None:
            continue
        lines += ["", HEADER, line(f"**{quantity.name}**", overall)]
        for way, some in grouped(one.outcome, quantity).items():
            lines += [line(f"{way}: {value}", error) for value, error in some.items()]
    return "\n".join(lines)


def _held_out(sku: str) -> str:
    """The calibration's own held-out points, from its card."""
    calibration = Database.packaged().gpu(sku).calibration
    card: dict[str, Any] = getattr(calibration, "card", {})
    entries = card.get("held_out", [])
    if not entries:
        return ""
    rows = [
        f"| {each['family']}: {each['group']} | {each['points']} | {percent(each['mean_error'])} | "
        f"{percent(each['p90_error'])} | {100 * each['bias']:+.1f} % | {percent(each['interval_coverage'])} |"
        for each in entries
    ]
    head = "| | points | mean error | p90 | bias | 90 % interval covers |\n|---|--:|--:|--:|--:|--:|"
    return "\n".join([RULES["held_out"].strip(), "", head, *rows])
