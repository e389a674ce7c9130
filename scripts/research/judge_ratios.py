"""Judge the interval of ratios (server/step/ratio.py) by measured pairs, as a table in markdown; docs/gate.md shows it.

    python scripts/research/judge_ratios.py            our own measurements, and the referee's where TILEWISE_SHARED says they lie

A pair of operators is two rows of one table and kernel group; a pair of steps is two models, two depths or two token counts
of one table and phase. `apart` is what the two intervals would say without knowing what they share.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.table import OperatorTable
from tilewise.hwdb.times import State
from tilewise.server.step import ratio
from tilewise.server.step.report import Report
from tilewise.server.validate import rules
from tilewise.server.validate.models import step_reports
from tilewise.server.validate.sheet import Sheet, read
from tilewise.server.validate.validate import OPERATORS, STEADY
from tilewise.server.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "tests" / "accuracy" / "measured"
NEAR = 2.0  # octaves: an edit of a size, not another model
MOST = 3000  # pairs of one table of operators
BUSY, WAITS = 0.7, 1.1  # CPU issue over GPU busy time, beyond which a step's wall time is the host's


@dataclass(frozen=True, slots=True)
class Pair:
    """Logs: error of the ratio, its half-widths, and the half-widths of the two intervals added up."""

    error: float
    below: float
    above: float
    apart_below: float
    apart_above: float


def operator_pairs(gpu: Gpu, sheet: Sheet) -> Iterator[Pair]:
    """Pairs of near operators of one kernel group, measured one by one without launches."""
    found = rules.reasons(sheet, gpu, Database.packaged())
    asked = OPERATORS[sheet.format](sheet, found)
    steady = np.nan_to_num(sheet.number("spread")) <= STEADY
    fair = (asked.reasons == "") & np.isfinite(asked.time_s) & steady
    single = np.flatnonzero((fair & (np.bincount(asked.owner, minlength=len(fair)) == 1))[asked.owner])
    times = gpu.predict(asked.table.select(single), State.BURST)
    single, times = single[np.isfinite(times.time_s)], times.select(np.flatnonzero(np.isfinite(times.time_s)))
    off = np.log(asked.time_s[asked.owner[single]] / times.time_s)
    half = 0.5 * np.log(times.high_s / times.low_s)
    entries = ratio.errors_of(
        gpu, one_by_one(asked.table.select(single)), times, Workload(phase="prefill", sequence=1, mode="graph")
    )
    i, j = np.triu_indices(len(single), 1)
    near = (np.abs(entries.place[i] - entries.place[j]).sum(1) < NEAR) & (entries.group[i] == entries.group[j])
    for at in np.random.default_rng(0).permutation(np.flatnonzero(near))[:MOST]:
        one, two = i[at], j[at]
        below, above = ratio.half_widths(picked(entries, one), picked(entries, two))
        yield Pair(off[two] - off[one], below[0], above[0], half[one] + half[two], half[one] + half[two])


def one_by_one(table: OperatorTable) -> OperatorTable:
    """The same rows, each a step of its own."""
    names = [name for name in table.__slots__ if name not in ("shapes", "shape")]
    rows = np.arange(len(table))
    return OperatorTable(shapes=len(rows), shape=rows, **{name: getattr(table, name) for name in names})


def picked(entries: ratio.Errors, row: int) -> ratio.Errors:
    """A step of one kernel, timed without its launch."""
    names = {name: getattr(entries, name)[row : row + 1] for name in entries.__slots__}
    nothing = np.zeros(1)
    own = {"step": np.zeros(1, np.int64), "share": np.ones(1), "longer": nothing, "shorter": nothing}
    return ratio.Errors(**names | own)


def step_pairs(gpu: Gpu, table: Path, configs: Path) -> Iterator[tuple[str, Pair]]:
    """Pairs of steps of one phase with what tells them apart and what bounds them."""
    sheet = read(table.read_text(encoding="utf-8"), table.name)
    found = rules.reasons(sheet, gpu, Database.packaged())
    texts = {path.stem: path.read_text(encoding="utf-8") for path in configs.glob("*.json")}
    reports = step_reports(gpu, sheet, found, texts.get)
    known = {row: report for row, report in enumerate(reports) if report and report.step.time}
    entries = {row: ratio.errors_of(gpu, r.table, r.times, r.workload) for row, r in known.items()}
    wall = 1e-3 * sheet.number("wall_ms")
    for (i, base), (j, head) in combinations(known.items(), 2):
        kind = differs(sheet, i, j)
        if kind and np.isfinite(wall[i] + wall[j]):
            below, above = ratio.half_widths(entries[i], entries[j])
            yield bound(base, head) + kind, step_pair(base, head, float(np.log(wall[j] / wall[i])), below[0], above[0])


def differs(sheet: Sheet, i: int, j: int) -> str:
    """ "model", "depth" or "tokens" where that alone tells two rows of one phase apart; else ""."""
    tokens = [(sheet.number("b")[row], sheet.number("s")[row]) for row in (i, j)]
    apart = {
        "model": sheet.text("model")[i] != sheet.text("model")[j],
        "depth": sheet.number("layers")[i] != sheet.number("layers")[j],
        "tokens": tokens[0] != tokens[1],
    }
    same_phase = sheet.text("phase")[i] == sheet.text("phase")[j]
    return (
        next(iter(name for name, differ in apart.items() if differ)) if same_phase and sum(apart.values()) == 1 else ""
    )


def bound(base: Report, head: Report) -> str:
    issue = max(report.step.issue_s / report.step.busy.time_s for report in (base, head))
    return "GPU-bound, another " if issue < BUSY else "mixed, another " if issue < WAITS else "CPU-bound, another "


def step_pair(base: Report, head: Report, measured: float, below: float, above: float) -> Pair:
    one, two = base.step.time, head.step.time
    assert one is not None and two is not None
    return Pair(
        measured - float(np.log(two.time_s / one.time_s)), below, above,
        float(np.log(one.high_s / one.time_s * two.time_s / two.low_s)),
        float(np.log(two.high_s / two.time_s * one.time_s / one.low_s)),
    )  # fmt: skip


def row(name: str, pairs: list[Pair]) -> str:
    error, below, above, apart_below, apart_above = np.array([[getattr(p, f) for f in p.__slots__] for p in pairs]).T
    covered = np.mean((-below <= error) & (error <= above))
    apart = np.mean((-apart_below <= error) & (error <= apart_above))
    widths = [np.mean(np.exp(high) - np.exp(-low)) for low, high in ((below, above), (apart_below, apart_above))]
    figures = (np.mean(np.abs(np.expm1(error))), covered, widths[0], apart, widths[1])
    return f"| {name} | {len(pairs)} | " + " | ".join(f"{100 * figure:.1f} %" for figure in figures) + " |"


def table(shared: Path | None) -> str:
    """The table of docs/gate.md."""
    database, lines = Database.packaged(), []
    h100 = database.gpu("h100-sxm5-80gb")
    truth = shared / "truth" / "h100" if shared else None
    for title, gpu in (("", h100), ("datasheet alone: ", Gpu(h100.sku))):
        for name in ("gemm", "attention", "memory_and_pointwise") if truth else ():
            sheet = read((truth / f"{name}.csv").read_text(encoding="utf-8"), name)
            lines.append(
                row(f"{title}referee, {name}, one group, under {NEAR:.0f} octaves", list(operator_pairs(gpu, sheet)))
            )
        tables = [("ours", OURS / "steps.csv", OURS / "configs")]
        tables += [("referee", truth / "hf_transformers_eager.csv", truth / "configs")] if truth else []
        for owner, table, configs in tables:
            groups: dict[str, list[Pair]] = defaultdict(list)
            for kind, pair in step_pairs(gpu, table, configs):
                groups[kind].append(pair)
            lines += [
                row(f"{title}{owner}, steps, {kind}", groups[kind]) for kind in sorted(groups) if len(groups[kind]) > 9
            ]
    head = "| pairs | number | mean error | ratio's interval covers | its width | the two apart cover | width |"
    return "\n".join([head, "|---|--:|--:|--:|--:|--:|--:|", *lines])


if __name__ == "__main__":
    found = os.environ.get("TILEWISE_SHARED")
    print(table(Path(found) if found else None))
