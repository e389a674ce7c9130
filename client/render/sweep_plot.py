"""Pictures of a sweep: a line for one field, with the cliffs marked; a heat map for two.

Every point has an id ("point-7", its place in the answer) that survives in SVG, so that a page can tell what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from tilewise.client.render.plot import PARTS, drawn, svg_picture, write_picture
from tilewise.client.render.sweep import groups, sweep_title
from tilewise.client.render.text import significant
from tilewise.v1.advice_pb2 import Cliff, SweepPoint, SweepRequest, SweepResponse

MARKED = 2000  # points that are marked one by one
FLAT = 0.6  # of the highest figure: a curve that never falls below it is looked at closely
WRITTEN = 200  # cells that have their figure written into them
LABELS = {"time": "ms a step", "mfu": "MFU, %"}
CLIFFS = ("#D55E00", "#7a0403", "#8e5ea2", "#009E73", "#666666")


def save(request: SweepRequest, answer: SweepResponse, show: str, path: str) -> None:
    """Write the picture in the format of the path's ending. Raises InvalidInput for another ending."""
    write_picture(path, inches(request, answer), lambda figure: draw(figure, request, answer, show))


def picture(request: SweepRequest, answer: SweepResponse, show: str) -> Any:
    """The same as a matplotlib Figure."""
    return drawn(inches(request, answer), lambda figure: draw(figure, request, answer, show))


def svg(request: SweepRequest, answer: SweepResponse, show: str) -> str:
    """The picture as an SVG element, to stand in a page."""
    return svg_picture(inches(request, answer), lambda figure: draw(figure, request, answer, show))


def inches(request: SweepRequest, answer: SweepResponse) -> tuple[float, float]:
    if len(request.axes) == 1:
        return 12.5, 5.8 + 0.42 * len(groups(answer.cliffs))
    rows = len({point.values[0] for point in answer.points})
    return 12.5, max(4.5, min(11.0, 1.8 + 0.36 * rows)) * len(gpus(answer))


def gpus(answer: SweepResponse) -> list[str]:
    return list(dict.fromkeys(point.gpu for point in answer.points))


def draw(figure: Any, request: SweepRequest, answer: SweepResponse, show: str) -> None:
    figure.suptitle(sweep_title(request), fontsize=12.5, x=0.01, ha="left")
    if len(request.axes) == 1:
        draw_lines(figure, request.axes[0].field, answer, show)
        return
    panels = figure.subplots(len(gpus(answer)), 1, squeeze=False)
    for panel, gpu in zip(panels[:, 0], gpus(answer), strict=True):
        draw_map(figure, panel, [axis.field for axis in request.axes], gpu, answer, show)


def figure_of(point: SweepPoint, show: str) -> float:
    return 100 * point.mfu if show == "mfu" else 1e3 * point.prediction.time_s


def draw_lines(figure: Any, field: str, answer: SweepResponse, show: str) -> None:
    """One line a GPU with its 90 % band, the cliffs between good and bad values, and their causes below."""
    panel = figure.subplots()
    for at, gpu in enumerate(gpus(answer)):
        points = sorted(((p.values[0], place, p) for place, p in enumerate(answer.points) if p.gpu == gpu and p.HasField("prediction")),
                        key=lambda each: each[0])  # fmt: skip
        _line(panel, [p for _, _, p in points], [place for _, place, _ in points], gpu, PARTS[at % len(PARTS)], show)
    _cliffs(panel, answer, show)
    panel.set(xlabel=field, ylabel=LABELS[show])
    _scales(panel, [p for p in answer.points if p.HasField("prediction")], show)
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower left", fontsize=8.5, frameon=False, ncols=1)


def _line(panel: Any, points: Sequence[SweepPoint], places: Sequence[int], gpu: str, colour: str, show: str) -> None:
    values, heights = [p.values[0] for p in points], [figure_of(p, show) for p in points]
    panel.plot(values, heights, color=colour, linewidth=1.3, label=f"{gpu}, band: 90 % interval")
    low, high = ([_bound(p, show, bound) for p in points] for bound in ("time_low_s", "time_high_s"))
    panel.fill_between(values, low, high, color=colour, alpha=0.13, linewidth=0)
    if len(points) <= MARKED:
        for point, value, height, place in zip(points, values, heights, places, strict=True):
            face = colour if point.fits else "white"  # hollow: it does not fit into the GPU's memory
            panel.scatter([value], [height], s=18, edgecolor=colour, facecolor=face, gid=f"point-{place}", zorder=3)
    if not all(point.fits for point in points):
        panel.scatter([], [], s=18, edgecolor=colour, facecolor="white", label=f"{gpu}: does not fit into its memory")


def _scales(panel: Any, points: Sequence[SweepPoint], show: str) -> None:
    """From zero where the figures vary by much, else near them; values over more than four octaves on a scale of octaves."""
    heights, values = [figure_of(p, show) for p in points] or [0.0], sorted({p.values[0] for p in points}) or [1]
    if min(heights) < FLAT * max(heights):
        panel.set_ylim(bottom=0)
    if values[-1] > 16 * values[0]:
        panel.set_xscale("log", base=2)
        if len(values) <= 24:
            panel.set_xticks(values, [str(value) for value in values])


def _bound(point: SweepPoint, show: str, bound: str) -> float:
    time: float = getattr(point.prediction, bound)
    return 100 * point.mfu * point.prediction.time_s / time if show == "mfu" else 1e3 * time


def _cliffs(panel: Any, answer: SweepResponse, show: str) -> None:
    """A stroke between the two values of every cliff, in the colour of its kind; each kind is told once."""
    heights = {(p.gpu, p.values[0]): figure_of(p, show) for p in answer.points if p.HasField("prediction")}
    for at, alike in enumerate(groups(answer.cliffs)):
        colour = CLIFFS[at % len(CLIFFS)]
        for cliff in alike:
            ends = [(value, heights[cliff.gpu, value]) for value in (cliff.good_value, cliff.bad_value)]
            panel.plot(*zip(*ends, strict=True), color=colour, linewidth=2.6, solid_capstyle="round", zorder=2)
        panel.plot([], [], color=colour, linewidth=2.6, label=told(alike))


def told(alike: Sequence[Cliff]) -> str:
    first = alike[0]
    more = f" and {len(alike) - 1} more like it" if len(alike) > 1 else ""
    return fill(
        f"{first.cause} x{first.time_ratio:.2f} at {first.good_value} -> {first.bad_value}{more}: {first.message}", 165
    )


def draw_map(figure: Any, panel: Any, fields: Sequence[str], gpu: str, answer: SweepResponse, show: str) -> None:
    """Rows: the first field, the smallest below; columns: the second. What was refused stays white."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    cells = [(place, p) for place, p in enumerate(answer.points) if p.gpu == gpu]
    known = [figure_of(p, show) for _, p in cells if p.HasField("prediction")] or [0.0]
    norm, colours = Normalize(min(known), max(known)), colormaps["viridis" if show == "mfu" else "viridis_r"]
    rows, columns = (sorted({p.values[at] for _, p in cells}) for at in (0, 1))
    row_of, column_of = ({value: at for at, value in enumerate(values)} for values in (rows, columns))
    for place, point in cells:
        if point.HasField("prediction"):
            where = column_of[point.values[1]], row_of[point.values[0]]
            _cell(
                panel,
                where,
                figure_of(point, show),
                colours(norm(figure_of(point, show))),
                place,
                written=len(cells) <= WRITTEN,
            )
    _ticks(panel, rows, columns)
    panel.set(xlabel=fields[1], ylabel=fields[0], xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5))
    panel.set_title(gpu, fontsize=10, loc="left")
    figure.colorbar(ScalarMappable(norm, colours), ax=panel, label=LABELS[show], pad=0.01)


def _cell(panel: Any, where: tuple[int, int], height: float, colour: Any, place: int, *, written: bool) -> None:
    from matplotlib.patches import Rectangle

    column, row = where
    panel.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, linewidth=0, gid=f"point-{place}"))
    if written:
        dark = sum(colour[:3]) < 1.5
        panel.text(
            column, row, significant(height), ha="center", va="center", fontsize=7.5, color="white" if dark else "black"
        )


def _ticks(panel: Any, rows: Sequence[int], columns: Sequence[int]) -> None:
    """At most some twenty values of each field are written."""
    for values, place in ((columns, panel.set_xticks), (rows, panel.set_yticks)):
        every = -(-len(values) // 20)
        place(range(0, len(values), every), [str(value) for value in values[::every]])
    panel.tick_params(axis="x", rotation=45 if len(columns) > 10 else 0)
