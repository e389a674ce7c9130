"""A sweep as one page that needs nothing else: the picture, each point told under the pointer, the cliffs, the points."""

from __future__ import annotations

from html import escape

from tilewise.client.render.html import Cell, document, grid, marked
from tilewise.client.render.report import wall
from tilewise.client.render.sweep import groups
from tilewise.client.render.sweep_plot import svg
from tilewise.client.render.text import gib, interval, parameters, percent, seconds, significant
from tilewise.v1.advice_pb2 import SweepPoint, SweepRequest, SweepResponse


def page(request: SweepRequest, answer: SweepResponse, show: str) -> str:
    """The whole document. Raises NotAvailable without matplotlib."""
    fields = [axis.field for axis in request.axes]
    title = f"{request.model.name}: {' and '.join(fields)}"
    hints = {f"0-point-{at}": hint(fields, point) for at, point in enumerate(answer.points)}
    parts = [
        f"<h1>{escape(title)}</h1>",
        marked(svg(request, answer, show), "0-"),
        cliffs(answer),
        points(fields, answer),
    ]
    return document(title, ["\n".join(parts)], hints)


def hint(fields: list[str], point: SweepPoint) -> str:
    """What stands under the pointer over a point."""
    where = ", ".join(f"{field} {value}" for field, value in zip(fields, point.values, strict=True))
    if not point.HasField("prediction"):
        return f"{where}\n{point.error.message}"
    time = point.prediction
    return "\n".join([
        f"{where}, {point.gpu}",
        f"{interval(time.time_low_s, time.time_s, time.time_high_s)} a step, bound by {wall(time.wall)}",
        f"{significant(point.tokens_per_s)} tokens/s, MFU {percent(point.mfu)}",
        f"{parameters(point.parameter_count)} parameters, {gib(point.memory_bytes)}{'' if point.fits else ': does not fit'}",
    ])  # fmt: skip


def cliffs(answer: SweepResponse) -> str:
    header = (
        "cliff",
        "good value",
        "bad value",
        "time for the same work",
        "such",
        "cause",
        "why the good value is faster",
    )
    rows: list[list[Cell]] = [
        [
            (first.field, None), (str(first.good_value), first.good_value), (str(first.bad_value), first.bad_value),
            (f"{first.time_ratio:.2f}", first.time_ratio), (str(len(alike)), len(alike)), (first.cause, None), (first.message, None),
        ]
        for alike in groups(answer.cliffs)
        for first in alike[:1]
    ]  # fmt: skip
    return f'<h2>Cliffs</h2><div class="scroll">{grid(header, rows)}</div>' if rows else "<h2>No cliffs</h2>"


def points(fields: list[str], answer: SweepResponse) -> str:
    header = (*fields, "GPU", "step", "90 % interval", "tokens/s", "MFU", "parameters", "memory")
    rows = [point_row(point) for point in answer.points]
    return f'<h2>Points</h2><div class="scroll">{grid(header, rows)}</div>'


def point_row(point: SweepPoint) -> list[Cell]:
    values: list[Cell] = [(str(value), value) for value in point.values]
    if not point.HasField("prediction"):
        return [*values, (point.gpu, None), ("refused", -1.0), (point.error.message, None), *[("-", -1.0)] * 4]
    time = point.prediction
    bounds = interval(time.time_low_s, time.time_s, time.time_high_s).partition(" (")[2].rstrip(")")
    return [
        *values, (point.gpu, None), (seconds(time.time_s), time.time_s), (bounds, time.time_low_s),
        (significant(point.tokens_per_s), point.tokens_per_s), (percent(point.mfu), point.mfu),
        (parameters(point.parameter_count), point.parameter_count), (gib(point.memory_bytes), point.memory_bytes),
    ]  # fmt: skip
