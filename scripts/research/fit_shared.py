"""Measure how much of their errors the operators of a step share (server/step/intervals.toml), from steps that no kernel model saw.

    python scripts/research/fit_shared.py

Of every step the error of its GPU busy time, over the half-widths that its operators would give it if they shared
nothing and everything. The shared part is the least at which nine steps in ten lie within their interval; that of the
variances (mean square error less what independent errors explain) stands beside it. Fitted on the H100's table alone;
the H200's and, where TILEWISE_SHARED says they lie, the referee's steps are only judged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.table import Floats
from tilewise.server.step.intervals import half_width
from tilewise.server.validate import rules
from tilewise.server.validate.models import step_reports
from tilewise.server.validate.sheet import read

MEASURED = Path(__file__).resolve().parents[2] / "tests" / "accuracy" / "measured"
PARTS = np.arange(0, 101) / 100
COVERED = 0.9
SIGMAS = 1.645  # of a 90 % interval
BEFORE = 0.5


def errors(sku: str, table: Path) -> tuple[Floats, Floats]:
    """(error, half): measured less predicted busy time, and its half-width towards that side by shared part, (steps, PARTS)."""
    database = Database.packaged()
    gpu, sheet = database.gpu(sku), read(table.read_text(encoding="utf-8"), table.name)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (table.parent / "configs").glob("*.json")}
    reports = step_reports(gpu, sheet, rules.reasons(sheet, gpu, database), texts.get)
    found = []
    for report, measured in zip(reports, 1e-3 * sheet.number("busy_ms"), strict=True):
        if report and report.step.time and np.isfinite(measured):
            off = measured - report.step.busy.time_s
            bound = report.times.low_s if off < 0 else report.times.high_s
            half = report.table.count * abs(bound - report.times.time_s)
            widths = [half_width(report.table.shape, 1, half, part)[0] for part in PARTS]
            found.append((off / report.step.busy.time_s, *(np.array(widths) / report.step.busy.time_s)))
    columns = np.array(found)
    return columns[:, 0], columns[:, 1:]


def tables() -> Iterator[tuple[str, str, Path]]:
    yield "H100, eight models (fitted)", "h100-sxm5-80gb", MEASURED / "steps.csv"
    yield "H200 (judged)", "h200-sxm-141gb", MEASURED / "h200-sxm-141gb" / "steps.csv"
    if shared := os.environ.get("TILEWISE_SHARED"):
        yield "referee (judged)", "h100-sxm5-80gb", Path(shared) / "truth" / "h100" / "hf_transformers_eager.csv"


def main() -> None:
    part = 0.0
    for name, sku, table in tables():
        error, half = errors(sku, table)
        covers = (np.abs(error)[:, None] <= half).mean(axis=0)
        if "fitted" in name:
            part = float(PARTS[np.argmax(covers >= COVERED)]) if covers[-1] >= COVERED else 1.0
            by_variance = np.mean((SIGMAS * error) ** 2 - half[:, 0] ** 2) / np.mean(half[:, -1] ** 2 - half[:, 0] ** 2)
            print(f"{len(error)} steps, shared = {part:.2f}; by variances {by_variance:.2f}")
        said = (f"{share:.2f}: {covers[at]:.1%} (half-width {half[:, at].mean():.1%})"
                for share in (0.0, BEFORE, part, 1.0) for at in [int(np.argmin(abs(PARTS - share)))])  # fmt: skip
        print(f"{name}: {len(error)} steps, bias {np.mean(error):+.1%}; covered by shared part", ", ".join(said))


if __name__ == "__main__":
    main()
