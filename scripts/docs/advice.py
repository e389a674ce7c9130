"""The tables of docs/advice.md on what was measured.

Source: tests/accuracy/measured/advice_pairs.csv and advice_neighbours.csv, as scripts/research/measure_advice.py wrote them, with
the predictions made before.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "tests" / "accuracy" / "measured"
Row = dict[str, str]


def rows(name: str) -> list[Row]:
    path = MEASURED / name
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pair_lines() -> Iterator[str]:
    """Every advised shape of the six architectures: predicted and measured time over that of the original."""
    found = rows("advice_pairs.csv")
    if not found:
        yield "Not measured yet."
        return
    yield "| model | change | predicted step | measured | predicted ratio | 90 % interval | measured ratio | difference | verdict |"
    yield "|---|---|--:|--:|--:|---|--:|--:|---|"
    for row in found:
        measured = f"{float(row['measured_ms']):.1f} ms" if not row["reason"] else row["reason"]
        shared = (
            f"| {row['model']} | {row['changes'] or 'as it is'} | {float(row['predicted_ms']):.1f} ms | {measured} |"
        )
        if row["variant"] == "as it is" or row["reason"]:
            yield f"{shared} | | | | |"
            continue
        ratio, real = float(row["predicted_ratio"]), float(row["measured_ratio"])
        bounds = f"{float(row['ratio_low']):.3f}-{float(row['ratio_high']):.3f}"
        verdict = row["verdict"].replace("_", " ")
        yield f"{shared} {ratio:.3f} | {bounds} | {real:.3f} | {100 * (ratio - real):+.1f} points | {verdict} |"


def pair_summary() -> str:
    """Errors of all advised shapes, and how many were measured slower."""
    advised = [row for row in rows("advice_pairs.csv") if row["variant"] != "as it is" and not row["reason"]]
    if not advised:
        return ""
    error = np.array([float(row["predicted_ratio"]) - float(row["measured_ratio"]) for row in advised])
    real = np.array([float(row["measured_ratio"]) for row in advised])
    inside = [float(row["ratio_low"]) <= float(row["measured_ratio"]) <= float(row["ratio_high"]) for row in advised]
    sure = np.array([row["verdict"] == "faster" for row in advised])
    return (
        f"{len(advised)} advised shapes: predicted and measured ratio differ by {100 * np.mean(abs(error)):.1f} points on average, "
        f"{100 * np.max(abs(error)):.1f} at most; {np.sum(abs(error) <= 0.03)} lie within 3 points, {sum(inside)} within their 90 % "
        f"interval. Of the {np.sum(sure)} called faster {np.sum(sure & (real < 1))} were measured faster; of all, "
        f"{np.sum(real > 1)} were measured slower."
    )


def regret_lines() -> Iterator[str]:
    """For each base: regret of the shape predicted fastest, and the rank correlation."""
    found = [row for row in rows("advice_neighbours.csv") if not row["reason"]]
    if not found:
        yield "Not measured yet."
        return
    yield "| base, one layer, training step | shapes | measured | the one predicted fastest | regret | rank correlation | on the grid alone |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for base in dict.fromkeys(row["base"] for row in found):
        yield regret_line(base, [row for row in found if row["base"] == base])


def grid_note() -> str:
    """How far shapes on the grid differ, and the measurement with itself."""
    found = [row for row in rows("advice_neighbours.csv") if not row["reason"]]
    if not found:
        return ""
    spread = np.median([float(row["spread"]) for row in found])
    reach = []
    for base in dict.fromkeys(row["base"] for row in found):
        times = sized([row for row in found if row["base"] == base and on_grid(row)], found)[0]
        reach.append(f"{times.max() / times.min() - 1:.1%}")
    return (
        f"Off the grid shapes differ by factors, and their ranks are told well. On it alone the predicted times differ by "
        f"{' and '.join(reach)} from the fastest to the slowest, hardly more than the windows of one measurement do (median "
        f"{spread:.1%}), so that ranks among good shapes mean little on either side: there, *cannot tell* is the honest verdict."
    )


def sized(near: list[Row], of: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and measured milliseconds over what fewer parameters than the base's give by themselves."""
    base = near[0]["base"]
    own = next(float(row["parameters"]) for row in of if row["base"] == base and row["index"] == "0")
    size = np.minimum(1.0, np.array([float(row["parameters"]) for row in near]) / own)
    predicted, real = (np.array([float(row[name]) for row in near]) / size for name in ("predicted_ms", "measured_ms"))
    return predicted, real


def regret_line(base: str, near: list[Row]) -> str:
    predicted, real = sized(near, near)
    chosen, grid = real[np.argmin(predicted)], np.array([on_grid(row) for row in near])
    return (
        f"| {base} | {len(near)} | {real.min():.2f}-{real.max():.2f} ms | {chosen:.2f} ms | {chosen / real.min() - 1:.1%} | "
        f"{correlation(predicted, real):.3f} | {correlation(predicted[grid], real[grid]):.3f} ({grid.sum()} shapes) |"
    )


def on_grid(row: Row) -> bool:
    """Whether all of a shape's widths are whole lines of memory, as those of advice are."""
    return all(int(size) % 64 == 0 for size in re.findall(r'(?:intermediate_size|vocab_size)": (\d+)', row["sizes"]))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, over ranks."""
    return float(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])


def pairs() -> str:
    """The table of advised shapes."""
    return "\n".join([*pair_lines(), "", pair_summary()])


def regret() -> str:
    """The table of neighbours."""
    return "\n".join([*regret_lines(), "", grid_note()])
