"""A prediction as one page that needs nothing else: figures, pictures with hints under the pointer, tables that sort."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from string import Template

from tilewise.client.render.plot import MEANING, svg, title
from tilewise.client.render.report import peak, wall, work_line
from tilewise.client.render.text import gib, interval, percent, seconds, si, significant
from tilewise.hwdb import packaged
from tilewise.v1.advisor_service_pb2 import PredictResponse
from tilewise.v1.report_pb2 import Layer, Loss, Operator, Remedy

MARK = re.compile(r'<g id="((?:operator|layer|point)-[^"]+)">')
Cell = tuple[str, float | None]  # what is shown, and what it is sorted by (None: text)


def page(answers: Sequence[PredictResponse]) -> str:
    """The whole document, one section an answer. Raises NotAvailable without matplotlib."""
    hints: dict[str, str] = {}
    sections = [section(f"{at}-", answer, hints) for at, answer in enumerate(answers)]
    return document(title(answers[0]), sections, hints)


def document(title: str, sections: Iterable[str], hints: dict[str, str]) -> str:
    """Sections as one document; `hints` are shown under the pointer over the marks of their names."""
    text = packaged.text("tilewise.client.render", "page.html")
    data = json.dumps(hints).replace("<", "\\u003c")  # in a script, "<!--" and "</" mean something
    shown = {"title": escape(title), "reports": "\n".join(sections), "hints": data, "policy": policy(text)}
    return Template(text).substitute(shown)


def policy(text: str) -> str:
    """A page runs its own script and no other, and asks nobody for anything."""
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    )


def section(prefix: str, answer: PredictResponse, hints: dict[str, str]) -> str:
    """One answer; its hints are added under ids that begin with `prefix`."""
    for at, row in enumerate(answer.operators):
        hints[f"{prefix}operator-{at}"] = operator_hint(row)
    for at, layer in enumerate(each for each in answer.layers if each.HasField("prediction")):
        for loss in layer.losses:
            hints[f"{prefix}layer-{at}-{loss.cause}"] = loss_hint(layer, loss)
    known = answer.step.HasField("prediction")
    pictures = [marked(svg(answer, name), prefix) for name in ("roofline", "layers")] if known else []
    notes = "".join(f'<p class="note">note: {escape(note)}</p>' for note in answer.architecture.notes)
    parts = [
        f"<h1>{escape(title(answer))}</h1>",
        f'<p class="work">{escape(work_line(answer.workload))}; calibration {answer.gpu.calibration or "none"}</p>{notes}',
        f'<p class="summary">{escape(answer.summary)}</p>',
        figures(answer),
        *pictures,
        advice(answer),
        layer_table(answer),
        operator_table(answer),
    ]
    return "\n".join(parts)


def marked(picture: str, prefix: str) -> str:
    """A picture whose marks know their hints. Ids of clips and markers get the prefix and a name: pictures share a page."""
    own = f"{prefix}{len(picture)}-"
    picture = MARK.sub(rf'<g data-hint="{prefix}\g<1>">', picture)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{own}", picture)


def figures(answer: PredictResponse) -> str:
    step, memory = answer.step, answer.memory
    room = f"{gib(memory.free_bytes)} free" if memory.fits else f"{gib(-memory.free_bytes)} too much"
    shown = []
    if answer.HasField("memory"):
        peak_at = f"of {gib(memory.capacity_bytes)}, {room}; peak: {memory.peak_moment}"
        shown.append(("memory", gib(memory.total_bytes), peak_at))
    if step.HasField("prediction"):
        time = step.prediction
        bounds = interval(time.time_low_s, time.time_s, time.time_high_s)
        shown = [
            ("step", seconds(time.time_s), f"90 % interval {bounds.partition(' (')[2].rstrip(')')}"),
            ("rate", f"{step.tokens_per_s:,.0f} tokens/s", f"bound by {wall(time.wall)}; {step.regime} regime"),
            ("MFU", percent(step.mfu), f"of {peak(step.peak)}; HFU {percent(step.hfu)}"),
            ("MBU", percent(step.mbu), f"of {si(answer.gpu.memory_bandwidth_bytes_per_s, 'B/s')}"),
            (
                "launches",
                significant(step.kernel_count),
                f"CPU {seconds(step.issue_s)}, GPU busy {seconds(step.busy_s)}",
            ),
            *shown,
        ]
        if step.HasField("energy_j"):
            bounds = f"{si(step.energy_low_j, 'J')} to {si(step.energy_high_j, 'J')}"
            shown.append(
                ("energy", si(step.energy_j, "J"), f"90 % interval {bounds}; {si(step.flops_per_j, 'FLOP/J')}")
            )
    items = (
        f"<div><dt>{name}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in shown
    )
    return f'<dl class="figures">{"".join(items)}</dl>'


def advice(answer: PredictResponse) -> str:
    """How the regime shows, and the remedies."""
    if not answer.HasField("diagnosis"):
        return ""
    found = answer.diagnosis
    signs = "".join(f"<li>{escape(sign)}</li>" for sign in found.signs)
    header = ("each change alone", "tokens/s a GPU", "90 % interval", "step", "memory")
    rows = [remedy_row(each) for each in found.remedies]
    return f"<h2>{escape(found.regime)}-bound</h2><ul>{signs}</ul>{grid(header, rows)}"


def remedy_row(remedy: Remedy) -> list[Cell]:
    bounds = f"{100 * remedy.gain_low:+.0f} to {100 * remedy.gain_high:+.0f} %"
    return [
        (remedy.change, None),
        (f"{100 * remedy.gain:+.1f} %", remedy.gain),
        (bounds, remedy.gain_low),
        (seconds(remedy.prediction.time_s), remedy.prediction.time_s),
        (gib(remedy.memory_bytes), float(remedy.memory_bytes)),
    ]


def layer_table(answer: PredictResponse) -> str:
    """Milliseconds of each kind of layer by cause."""
    causes = [loss.cause for loss in answer.step.losses if loss.share >= 5e-4]
    rows = [
        [(layer.name, None), time_cell(layer), (percent(layer.share), layer.share), *loss_cells(layer.losses, causes)]
        for layer in answer.layers
        if layer.HasField("prediction")
    ]
    if rows:
        total = (seconds(answer.step.prediction.time_s), answer.step.prediction.time_s)
        rows.append([("step", None), total, (percent(1.0), 1.0), *loss_cells(answer.step.losses, causes)])
    header = ("layer", "time", "share", *(f"ms: {MEANING[cause]}" for cause in causes))
    return f'<h2>Layers</h2><div class="scroll">{grid(header, rows)}</div>' if rows else ""


def loss_cells(losses: Iterable[Loss], causes: Sequence[str]) -> list[Cell]:
    times = {loss.cause: 1e3 * loss.time_s for loss in losses}
    return [(significant(times[cause]) if times.get(cause) else "-", times.get(cause, 0.0)) for cause in causes]


def operator_table(answer: PredictResponse) -> str:
    header = ("operator", "where", "direction", "shape", "count", "each", "in all", "share", "wall", "MFU", "kernel")
    rows = [
        [
            (row.name, None), (row.layer, None), (row.direction, None), (row.shape, None),
            (f"{row.count:.4g}", row.count), time_cell(row), (seconds(row.total_s), row.total_s),
            (percent(row.share), row.share), (wall(row.prediction.wall) if not row.refusal else row.refusal, None),
            (percent(row.mfu), row.mfu) if row.HasField("mfu") else ("-", -1.0), (row.kernel, None),
        ]
        for row in answer.operators
    ]  # fmt: skip
    return f'<h2>Operators</h2><div class="scroll">{grid(header, rows)}</div>' if rows else ""


def time_cell(row: Layer | Operator) -> Cell:
    if not row.HasField("prediction"):
        return "refused", -1.0
    return seconds(row.prediction.time_s), row.prediction.time_s


def plain_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of figures and words as a table, their keys above."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return grid(columns, [[plain_cell(row.get(name)) for name in columns] for row in rows]) if rows else ""


def plain_cell(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}", float(value)
    return "" if value is None else str(value), None


def grid(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell(content: Cell) -> str:
    text, value = content
    if value is None:
        return f"<td>{escape(text)}</td>"
    return f'<td class="number" data-value="{value:.9g}">{escape(text)}</td>'


def operator_hint(row: Operator) -> str:
    """What stands under the pointer over an operator's mark."""
    if not row.HasField("prediction"):
        return f"{row.name}: {row.refusal}"
    time = row.prediction
    lines = [
        f"{row.name} {row.direction}, {row.layer}",
        row.shape,
        f"{row.count:.4g} x {interval(time.time_low_s, time.time_s, time.time_high_s)}, {percent(row.share)} of the busy time",
        f"bound by {wall(time.wall)}; {si(row.traffic_bytes / time.time_s, 'B/s')}",
    ]
    if row.executed_flops > 0 and row.HasField("mfu"):
        lines.append(f"{si(row.executed_flops / time.time_s, 'FLOPS')}, MFU {percent(row.mfu)}")
    return "\n".join([*lines, row.kernel] if row.kernel else lines)


def loss_hint(layer: Layer, loss: Loss) -> str:
    return f"{layer.name}: {MEANING[loss.cause]}\n{seconds(loss.time_s)}, {percent(loss.share)} of the step"
