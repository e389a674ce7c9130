"""The picture of a validation: predicted against measured, and below it their ratio with the 90 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.client.render.plot import FORMATS, import_matplotlib
from tilewise.client.render.text import percent
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.validate.outcome import Errors, Quantity, errors, grouped
from tilewise.server.validate.validate import Validation

# Okabe and Ito's colours, which the colour-blind tell apart; the last for what has no colour of its own
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
# what the colours stand for: the first of these that tells rows apart
WAYS = ("precision", "phase", "operator", "recompute", "kind", "ranks")
UNITS = {"s": ((1e-3, "us", 1e6), (1.0, "ms", 1e3), (np.inf, "s", 1.0)), "bytes": ((np.inf, "GiB", 2.0**-30),)}
ACROSS = 3  # panels side by side
# ticks of the ratio's axis by how far it reaches
TICKS = ((1.3, (0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25)), (2.5, (0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2)),
         (9.0, (0.25, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3, 4)))  # fmt: skip
NARROWEST, WIDEST = 1.12, 4.0  # the ratio's axis reaches to so much either way
TEN_PERCENT = 0.1


def draw(found: Sequence[Validation], path: Path) -> None:
    """Write the picture to a .png, .svg or .pdf. Raises InvalidInput for another suffix, NotAvailable without matplotlib."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidInput(f"{path} must end in one of {', '.join(FORMATS)}", reason="BAD_PICTURE", field="plot")
    import_matplotlib()
    from matplotlib.figure import Figure

    panels = [
        (one, quantity) for one in found for quantity in one.outcome.quantities
        if quantity.unit in UNITS and errors(quantity) is not None
    ]  # fmt: skip
    down = max(1, -(-len(panels) // ACROSS))
    across = max(1, -(-len(panels) // down))
    figure = Figure(figsize=(6.0 * across, 8.2 * down), layout="constrained", dpi=130)
    axes = figure.subplots(2 * down, across, squeeze=False, height_ratios=(3, 2) * down)
    for empty in axes[-2:, len(panels) - across * (down - 1) :].flat:
        empty.set_axis_off()
    for index, (one, quantity) in enumerate(panels):
        above, below = axes[2 * (index // across) : 2 * (index // across) + 2, index % across]
        above.sharex(below)
        _panel(above, below, one, quantity)
    figure.savefig(path)


def _panel(above: Any, below: Any, found: Validation, quantity: Quantity) -> None:
    unit, scale = _unit(quantity)
    overall = errors(quantity)
    assert overall is not None
    measured, predicted = quantity.measured * scale, quantity.predicted * scale
    for label, colour, rows in _series(found, quantity):
        style = {"s": 14, "alpha": 0.75, "color": colour, "linewidths": 0}
        above.scatter(measured[rows], predicted[rows], label=label, zorder=3, **style)
        _ratio(below, quantity, rows, measured, style)
    _upper(above, quantity, measured, unit)
    above.set_title(_title(found, quantity, overall), fontsize=9)
    _lower(below, quantity, unit)
    for axis in (above.xaxis, above.yaxis, below.xaxis):
        _plain(axis)


def _unit(quantity: Quantity) -> tuple[str, float]:
    """Name and scale of the unit that fits the middle of the measurements."""
    middle = float(np.median(quantity.measured[quantity.judged]))
    return next((name, scale) for below, name, scale in UNITS[quantity.unit] if middle < below)


def _series(found: Validation, quantity: Quantity) -> list[tuple[str, str, np.ndarray]]:
    """(label, colour, rows) of each group, the largest first; small ones share the last colour."""
    groups = grouped(found.outcome, quantity)
    way = next((way for way in WAYS if way in groups), None)
    if way is None:
        return [("all rows", COLOURS[0], quantity.judged)]
    words = found.outcome.groups[way]
    ordered = sorted(groups[way], key=lambda value: -groups[way][value].points)
    single, rest = ordered[: len(COLOURS) - 1], ordered[len(COLOURS) - 1 :]
    named = [(value, words == value) for value in single] + ([("other", np.isin(words, rest))] if rest else [])
    series = []
    for (value, mask), colour in zip(named, COLOURS, strict=False):
        error = errors(quantity, mask)
        assert error is not None
        series.append((f"{value}: {percent(error.mean)} of {error.points}", colour, quantity.judged & mask))
    return series


def _ratio(below: Any, quantity: Quantity, rows: np.ndarray, measured: np.ndarray, style: dict[str, Any]) -> None:
    """Ratios with their intervals; what the axis does not reach is a triangle at its edge."""
    reach, ratio = _reach(quantity), quantity.ratio
    inside = rows & (ratio <= reach) & (ratio >= 1 / reach)
    below.scatter(measured[inside], ratio[inside], zorder=3, **style)
    for beyond, edge, marker in ((rows & (ratio > reach), reach, "^"), (rows & (ratio < 1 / reach), 1 / reach, "v")):
        below.scatter(measured[beyond], np.full(beyond.sum(), edge), marker=marker, zorder=4, clip_on=False, **style)
    low, high = quantity.low / quantity.measured, quantity.high / quantity.measured
    below.vlines(measured[rows], low[rows], high[rows], color=style["color"], alpha=0.15, linewidth=0.7, zorder=2)
    missed = inside & (high > low) & ((low > 1) | (high < 1))
    below.scatter(measured[missed], ratio[missed], s=34, facecolors="none", edgecolors="0.2", linewidths=0.7, zorder=5)


def _reach(quantity: Quantity) -> float:
    """How far the ratio's axis reaches, as a factor: to 98 % of the points, within bounds."""
    off = np.exp(np.abs(np.log(quantity.ratio[quantity.judged])))
    return float(np.clip(1.1 * np.quantile(off, 0.98), NARROWEST, WIDEST))


def _upper(above: Any, quantity: Quantity, measured: np.ndarray, unit: str) -> None:
    shown = measured[quantity.judged]
    line = np.array([shown.min() / 1.3, shown.max() * 1.3])
    above.plot(line, line, color="0.3", linewidth=1, zorder=1)
    above.fill_between(line, line * (1 - TEN_PERCENT), line * (1 + TEN_PERCENT), color="0.9", zorder=0)
    above.set(xscale="log", yscale="log", ylabel=f"predicted {quantity.name}, {unit}", xlim=line)
    above.legend(title="mean error", fontsize=8, title_fontsize=8, loc="upper left", framealpha=0.9)
    above.grid(True, which="major", color="0.92", linewidth=0.6)
    above.set_axisbelow(True)


def _title(found: Validation, quantity: Quantity, overall: Errors) -> str:
    off = f"error {percent(overall.mean)} mean, {percent(overall.median)} median, bias {100 * overall.bias:+.1f} %"
    lines = [f"{found.sheet.name}: {quantity.name} on {found.gpu}", f"{overall.points} points: {off}"]
    if overall.covered is not None and overall.width is not None:
        lines.append(f"90 % interval: covers {percent(overall.covered)} (others ringed), {percent(overall.width)} wide")
    return "\n".join(lines)


def _lower(below: Any, quantity: Quantity, unit: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    reach = _reach(quantity)
    below.axhline(1, color="0.3", linewidth=1, zorder=1)
    below.axhspan(1 - TEN_PERCENT, 1 + TEN_PERCENT, color="0.9", zorder=0)
    below.set(
        yscale="log", ylabel="predicted / measured", xlabel=f"measured {quantity.name}, {unit}", ylim=(1 / reach, reach)
    )
    ticks = next(ticks for most, ticks in TICKS if reach <= most)
    below.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if 1 / reach <= tick <= reach]))
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    below.yaxis.set_minor_locator(NullLocator())
    below.grid(True, axis="x", color="0.92", linewidth=0.6)


def _plain(axis: Any) -> None:
    """Numbers written out on a logarithmic axis; where it spans little, also between the powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 60 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
