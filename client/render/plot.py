"""Pictures of a prediction: every operator on the roofline, and where the time of each kind of layer goes. Needs matplotlib.

Every mark has an id ("operator-3", "layer-0-launch") that survives in SVG, so that a page can tell what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.client.render.text import percent, seconds, si, significant
from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.kinds import MULTIPLYING

if TYPE_CHECKING:
    from tilewise.v1.advisor_service_pb2 import PredictResponse
    from tilewise.v1.report_pb2 import Layer, Operator

FORMATS = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, which the colour-blind tell apart; work first in blues, then what is lost in warm ones
CAUSES = {
    "useful": "#0072B2",
    "extra": "#56B4E9",
    "kernel": "#9ecae1",
    "padding": "#CC79A7",
    "wave": "#8e5ea2",
    "alignment": "#7a0403",
    "bandwidth": "#E69F00",
    "special_function": "#009E73",
    "launch": "#D55E00",
    "communication": "#666666",
}
MEANING = {
    "useful": "model FLOPs at the peak",
    "extra": "FLOPs beyond the model's",
    "kernel": "matrix kernels below the peak",
    "padding": "tile padding",
    "wave": "last waves",
    "alignment": "misaligned operands",
    "bandwidth": "memory bandwidth",
    "special_function": "exp units",
    "launch": "launches and idle GPU",
    "communication": "links between GPUs",
}
PARTS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7f7f7f", "#8c564b", "#bcbd22", "#17becf")
MARKERS = {"forward": "o", "backward": "s", "recompute": "^", "optimizer": "D"}
WHOLE = (12.5, 11.0)  # inches
NUMBERED = 8  # operators that are named beside the roofline


def save(answer: PredictResponse, path: str) -> None:
    """Roofline above, layers below, in the format of the path's ending. Raises InvalidInput for another ending."""
    write_picture(path, WHOLE, lambda figure: draw_whole(figure, answer))


def picture(answer: PredictResponse) -> Any:
    """The same as a matplotlib Figure."""
    return drawn(WHOLE, lambda figure: draw_whole(figure, answer))


def draw_whole(figure: Any, answer: PredictResponse) -> None:
    figure.suptitle(title(answer), fontsize=13, fontweight="bold", x=0.01, ha="left")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.45, 1))
    draw_roofline(upper, answer)
    draw_layers(lower, answer)


def write_picture(path: str, inches: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """Write what `draw` draws on a figure, in the format of the path's ending. Raises InvalidInput for another ending."""
    if Path(path).suffix.lower() not in FORMATS:
        message = f"{path} must end in one of {', '.join(FORMATS)}"
        raise InvalidInput(message, reason="BAD_PICTURE", field="plot")
    drawn(inches, draw).savefig(path, dpi=150)


def drawn(inches: tuple[float, float], draw: Callable[[Any], None]) -> Any:
    """What `draw` draws as a Figure of its own, whatever backend the process uses; a notebook shows it."""
    import_matplotlib()
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            held = BytesIO()
            self.savefig(held, format="png")
            return held.getvalue()

    figure = Picture(figsize=inches, layout="constrained")
    draw(figure)
    return figure


def svg(answer: PredictResponse, picture: str) -> str:
    """The "roofline" or the "layers" as an SVG element, to stand in a page."""
    inches, draw = {"roofline": ((12.5, 6.6), draw_roofline), "layers": ((12.5, 4.6), draw_layers)}[picture]
    return svg_picture(inches, lambda figure: draw(figure, answer))


def svg_picture(inches: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """What `draw` draws on a figure as an SVG element, the same bytes every time."""
    figure, text = drawn(inches, draw), StringIO()
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tilewise"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def import_matplotlib() -> None:
    """Raises NotAvailable where the extra `plots` is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        message = "pictures need matplotlib: pip install 'tilewise[plots]'"
        raise NotAvailable(message, reason="MATPLOTLIB_MISSING") from error


def title(answer: PredictResponse) -> str:
    step = answer.step
    time = f"{seconds(step.prediction.time_s)} a step" if step.HasField("prediction") else "no time"
    mfu = f", MFU {percent(step.mfu)}" if step.HasField("mfu") else ""
    return f"{answer.architecture.name} on {answer.gpu.title}: {time}{mfu}"


def draw_roofline(figure: Any, answer: PredictResponse) -> None:
    """Left: operators that only move bytes, by their size; middle: those that multiply, under the roofs; right: names."""
    moving, multiplying, names = figure.subplots(1, 3, width_ratios=(2.2, 4.2, 2.6))
    colours = {layer.name: PARTS[at % len(PARTS)] for at, layer in enumerate(answer.layers)}
    known = [(at, row) for at, row in enumerate(answer.operators) if row.HasField("prediction")]
    named = {at: number for number, (at, _) in enumerate(sorted(known, key=by_time)[:NUMBERED], 1)}
    for axis, multiplies in ((moving, False), (multiplying, True)):
        rows = [(at, row) for at, row in known if (row.kind in MULTIPLYING) == multiplies and row.traffic_bytes > 0]
        places = {at: place(row, multiplies) for at, row in rows}
        for at, row in rows:
            _mark(axis, at, row, places[at], colours.get(row.part, "#000000"))
        _numbers(axis, [(named[at], places[at], area(row)) for at, row in rows if at in named])
        (_roofs if multiplies else _bandwidth)(axis, answer, list(places.values()))
    _legends(names, answer, colours)
    _largest(names, [(number, answer.operators[at]) for at, number in named.items()])


def by_time(item: tuple[int, Operator]) -> float:
    return -item[1].total_s


def area(row: Operator) -> float:
    """Square points of an operator's mark."""
    return 16 + 900 * row.share


def place(row: Operator, multiplies: bool) -> tuple[float, float]:
    """Where an operator stands: FLOP/byte and FLOP/s, or bytes and bytes/s."""
    time = row.prediction.time_s
    if multiplies:
        return row.executed_flops / row.traffic_bytes, row.executed_flops / time
    return row.traffic_bytes, row.traffic_bytes / time


def _mark(axis: Any, at: int, row: Operator, where: tuple[float, float], colour: str) -> None:
    axis.scatter(
        *([value] for value in where), s=area(row), marker=MARKERS.get(row.direction, "o"), color=colour,
        alpha=0.75, edgecolor="white", linewidth=0.6, gid=f"operator-{at}", zorder=3,
    )  # fmt: skip


def _numbers(axis: Any, numbered: Sequence[tuple[int, tuple[float, float], float]]) -> None:
    """Numbers beside their marks; marks that lie on one another share a line."""
    from matplotlib.patheffects import withStroke

    groups: list[tuple[list[int], tuple[float, float], float]] = []  # the first one's mark is the largest
    for number, where, size in sorted(numbered):
        near = (
            numbers
            for numbers, other, _ in groups
            if all(0.8 < a / b < 1.25 for a, b in zip(where, other, strict=True))
        )
        found = next(near, None)
        if found is None:
            groups.append(([number], where, size))
        else:
            found.append(number)
    for numbers, where, size in groups:
        axis.annotate(
            " ".join(map(str, numbers)), where, xytext=(-4 - size**0.5 / 2, -1), textcoords="offset points", ha="right",
            va="center", fontsize=9.5, fontweight="bold", zorder=4,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip


def _roofs(axis: Any, answer: PredictResponse, places: Sequence[tuple[float, float]]) -> None:
    """The diagonal of the memory, and the dense peak of every format that the step multiplies in."""
    bandwidth = answer.gpu.memory_bandwidth_bytes_per_s
    peaks = {row.peak.key: row.peak.flops_per_s for row in answer.operators if row.HasField("peak")}
    peaks = peaks or {answer.step.peak.key: answer.step.peak.flops_per_s}
    highest, ridge = max(peaks.values()), answer.step.peak.flops_per_s / bandwidth
    low = min(ridge / 12, *(x / 2 for x, _ in places), 1e9)
    high = max(6 * highest / bandwidth, *(2 * x for x, _ in places), 0.0)
    for key, rate in peaks.items():
        axis.plot([rate / bandwidth, high], [rate, rate], color="black", linewidth=1.4)
        _note(axis, f"{si(rate, 'FLOPS')} dense {key}", (high, rate), (-4, 4), ha="right")
    axis.plot([low, highest / bandwidth], [low * bandwidth, highest], color="black", linewidth=1.4)
    middle = (low * ridge) ** 0.5
    _note(axis, si(bandwidth, "B/s"), (middle, middle * bandwidth), (-6, 4), ha="right")
    axis.axvline(ridge, color="black", linewidth=0.6, linestyle=":", zorder=1)
    floor = min(low * bandwidth / 2, *(y / 2 for _, y in places), highest)
    _note(axis, f"ridge {significant(ridge)}", (ridge, floor), (3, 4))
    axis.set_title("matrix products and attention under the roofline", fontsize=10, loc="left")
    _log_axes(axis, "FLOP per byte of device memory", "FLOP/s", (low, high), (floor, 2.2 * highest))


def _bandwidth(axis: Any, answer: PredictResponse, places: Sequence[tuple[float, float]]) -> None:
    """Kernels that only move bytes: the small ones end below the memory's rate, those in the cache above."""
    bandwidth = answer.gpu.memory_bandwidth_bytes_per_s
    axis.axhline(bandwidth, color="black", linewidth=1.4)
    sizes, rates = [x for x, _ in places] or [1e6], [y for _, y in places] or [bandwidth]
    across = min(sizes) / 4, max(sizes) * 4
    _note(axis, si(bandwidth, "B/s"), (across[1], bandwidth), (-4, 4), ha="right")
    axis.set_title("everything else, by its size", fontsize=10, loc="left")
    _log_axes(axis, "bytes", "bytes/s", across, (min(min(rates), bandwidth / 10) / 2, 2.2 * max(bandwidth, *rates)))


def _note(axis: Any, text: str, where: tuple[float, float], shift: tuple[float, float], ha: str = "left") -> None:
    axis.annotate(text, where, xytext=shift, textcoords="offset points", ha=ha, fontsize=8.5)


def _log_axes(axis: Any, across: str, up: str, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    from matplotlib.ticker import EngFormatter, NullFormatter

    axis.set(xscale="log", yscale="log", xlim=xlim, ylim=ylim, xlabel=across, ylabel=up)
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(EngFormatter(sep=""))
        each.set_minor_formatter(NullFormatter())
    axis.grid(alpha=0.25)


def _legends(axis: Any, answer: PredictResponse, colours: dict[str, str]) -> None:
    """Colours of the kinds of layer, shapes of the directions."""
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

    axis.axis("off")
    parts = {row.part for row in answer.operators}
    directions = {row.direction for row in answer.operators}
    kinds = [(part, colour, "o") for part, colour in colours.items() if part in parts]
    ways = [(way, "#555555", marker) for way, marker in MARKERS.items() if way in directions]
    for entries, left in ((kinds, 0.0), (ways, 0.5)):
        handles = [Line2D([], [], color=c, marker=m, linestyle="", label=label) for label, c, m in entries]
        axis.add_artist(
            Legend(
                axis, handles, [label for label, _, _ in entries], loc="upper left", fontsize=8.5, frameon=False,
                bbox_to_anchor=(left, 1.0), borderaxespad=0,
            )
        )  # fmt: skip


def _largest(axis: Any, named: Sequence[tuple[int, Operator]]) -> None:
    lines = [f"{number}  {row.name} {row.direction}, {percent(row.share)}\n    {row.shape}" for number, row in named]
    text = "largest operators, of the busy time\n\n" + "\n".join(lines)
    axis.text(0, 0, text, fontsize=8.5, va="bottom", transform=axis.transAxes, linespacing=1.35)


def draw_layers(figure: Any, answer: PredictResponse) -> None:
    """One bar a kind of layer, cut by cause; its 90 % interval as a whisker."""
    axis = figure.subplots()
    layers = [layer for layer in answer.layers if layer.HasField("prediction")]
    present = [cause for cause in CAUSES if _share(answer, cause) >= 5e-4]
    for at, layer in enumerate(layers):
        left = 0.0
        for cause, time in _in_order(layer, present):
            axis.barh(at, 1e3 * time, left=left, color=CAUSES[cause], height=0.72, gid=f"layer-{at}-{cause}")
            left += 1e3 * time
        _whisker(axis, at, layer, left)
    for cause in present:
        axis.barh(0, 0, color=CAUSES[cause], label=f"{MEANING[cause]} {percent(_share(answer, cause))}")
    axis.set_yticks(range(len(layers)), [layer.name for layer in layers])
    axis.invert_yaxis()
    axis.set(xlabel="ms of the step", title="")
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.14)
    axis.set_xlim(left=0)
    figure.legend(loc="outside right lower", fontsize=8.5, frameon=False, title="where the time goes, of the step")


def _in_order(layer: Layer, causes: Sequence[str]) -> Iterator[tuple[str, float]]:
    times = {loss.cause: loss.time_s for loss in layer.losses}
    return ((cause, times[cause]) for cause in causes if cause in times)


def _whisker(axis: Any, at: int, layer: Layer, end: float) -> None:
    time = layer.prediction
    low, high = (1e3 * (bound - time.time_s) for bound in (time.time_low_s, time.time_high_s))
    axis.errorbar(end, at, xerr=[[-low], [high]], color="#333333", linewidth=0.9, capsize=2.5)
    mfu = f", MFU {percent(layer.mfu)}" if layer.HasField("mfu") and layer.mfu >= 0.0005 else ""
    axis.annotate(
        f"{seconds(end / 1e3)}{mfu}",
        (end + high, at),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
    )


def _share(answer: PredictResponse, cause: str) -> float:
    return sum(loss.share for loss in answer.step.losses if loss.cause == cause)
