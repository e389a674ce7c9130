"""Predicted against measured, as text, as data and row by row."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict

from tilewise.client.render.data import dumps
from tilewise.client.render.text import percent, table
from tilewise.server.validate.outcome import Errors, Outcome, Quantity, errors, grouped
from tilewise.server.validate.validate import Validation

HEADER = ("", "points", "mean", "median", "p90", "bias", "covered", "width")
LEGEND = (
    "mean, median, p90: of |predicted / measured - 1|; bias: mean of predicted / measured - 1; covered: measurements inside\n"
    "the 90 % interval; width: its mean width over the prediction\n"
)
COUNTS = ("judged", "refused", "skipped", "unmeasured")
REASONS, WORST = 8, 10


def text(found: Sequence[Validation]) -> str:
    """One section a table, and what the figures mean."""
    return "\n".join([*map(section, found), LEGEND])


def section(found: Validation) -> str:
    """A table: how many rows count, the errors of each quantity and of its groups."""
    outcome, counts = found.outcome, counted(found.outcome)
    basis = f"calibration {found.calibration}" if found.calibration else "no calibration: datasheet, published ceilings"
    shares = [f"{counts[name]} {name}" for name in COUNTS if counts[name] or name != "unmeasured"]
    lines = [
        f"{found.sheet.name}: {found.sheet.title} on {found.gpu} ({basis})",
        f"{counts['rows']} rows: {', '.join(shares)}",
    ]
    lines += [*(f"  {number} x {why}" for why, number in reasons(outcome).most_common(REASONS)), ""]
    for quantity in outcome.quantities:
        overall = errors(quantity)
        if overall is not None:
            lines += [table(HEADER, rows_of(outcome, quantity, overall), right=range(1, len(HEADER))), ""]
    return "\n".join(lines)


def rows_of(outcome: Outcome, quantity: Quantity, overall: Errors) -> list[list[str]]:
    lines = [line(quantity.name, overall)]
    for way, some in grouped(outcome, quantity).items():
        lines.append([f"  {way}", *[""] * (len(HEADER) - 1)])
        lines += [line(f"    {value}", error) for value, error in some.items()]
    return lines


def line(name: str, error: Errors) -> list[str]:
    interval = ["-" if share is None else percent(share) for share in (error.covered, error.width)]
    sizes = [percent(value) for value in (error.mean, error.median, error.p90)]
    return [name, str(error.points), *sizes, f"{100 * error.bias:+.1f} %", *interval]


def counted(outcome: Outcome) -> dict[str, int]:
    """Rows, and of them: judged by any quantity; refused by the models; skipped for a reason of their own; unmeasured."""
    judged = np.any([quantity.judged for quantity in outcome.quantities], axis=0)
    given = outcome.reasons != ""
    parts = (judged, outcome.refused & ~judged, given & ~outcome.refused & ~judged, ~given & ~judged)
    return {"rows": len(judged), **{name: int(part.sum()) for name, part in zip(COUNTS, parts, strict=True)}}


def reasons(outcome: Outcome) -> Counter[str]:
    """Why rows have no prediction, and how often."""
    return Counter(why for why in outcome.reasons.tolist() if why)


def to_json(found: Sequence[Validation]) -> str:
    return dumps({"tables": [data(one) for one in found]})


def data(found: Validation) -> dict[str, Any]:
    """A table as plain data; errors are shares, 0.05 for 5 %."""
    outcome = found.outcome
    return {
        "table": found.sheet.name,
        "format": found.sheet.format,
        "gpu": found.gpu,
        "calibration": found.calibration,
        **counted(outcome),
        "reasons": dict(reasons(outcome).most_common()),
        "quantities": [quantity_data(found, quantity) for quantity in outcome.quantities],
    }


def quantity_data(found: Validation, quantity: Quantity) -> dict[str, Any]:
    overall = errors(quantity)
    return {
        "name": quantity.name,
        "unit": quantity.unit,
        "errors": asdict(overall) if overall else None,
        "groups": {
            way: {value: asdict(error) for value, error in some.items()}
            for way, some in grouped(found.outcome, quantity).items()
        },
        "worst": worst(found, quantity),
    }


def worst(found: Validation, quantity: Quantity, most: int = WORST) -> list[dict[str, Any]]:
    """The rows that are furthest off, as the table has them, with predicted over measured."""
    distance = np.nan_to_num(np.abs(quantity.ratio - 1), nan=-1.0)
    order = [row for row in np.argsort(-distance, kind="stable")[:most].tolist() if distance[row] >= 0]
    columns = found.sheet.columns.items()
    return [
        {"ratio": float(quantity.ratio[row]), "row": {name: str(cells[row]) for name, cells in columns}}
        for row in order
    ]


def rows_csv(found: Validation) -> str:
    """The table with its predictions: what was read, then predicted_* and the interval, the wall, and a reason."""
    added = predictions(found.outcome)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    kept = {name: cells for name, cells in found.sheet.columns.items() if name not in added}
    writer.writerow([*kept, *added])
    writer.writerows(zip(*(cells.tolist() for cells in kept.values()), *added.values(), strict=True))
    return out.getvalue()


def predictions(outcome: Outcome) -> dict[str, list[str]]:
    """Columns by name. Times are predicted_us with low_us and high_us; of whole models also predicted_busy_ms and _wall_ms."""
    columns: dict[str, list[str]] = {}
    by_name = {quantity.name: quantity for quantity in outcome.quantities}
    time = by_name.get("time") or by_name.get("wall time")
    if "peak memory" in by_name:
        columns["predicted_mib"] = cells(by_name["peak memory"].predicted / 2**20)
    if time is not None:
        for name, values in (("predicted_us", time.predicted), ("low_us", time.low), ("high_us", time.high)):
            columns[name] = cells(values * 1e6)
    columns["wall"] = outcome.walls.tolist()
    if "sustained time" in by_name:
        columns["predicted_sustained_us"] = cells(by_name["sustained time"].predicted * 1e6)
    if "busy time" in by_name:
        columns["predicted_busy_ms"] = cells(by_name["busy time"].predicted * 1e3)
        columns["predicted_wall_ms"] = cells(by_name["wall time"].predicted * 1e3)
        columns["predicted_kernels"] = cells(by_name["kernels"].predicted)
    columns["reason"] = outcome.reasons.tolist()
    return columns


def cells(values: np.ndarray) -> list[str]:
    return ["" if np.isnan(value) else f"{value:.6g}" for value in values.tolist()]
