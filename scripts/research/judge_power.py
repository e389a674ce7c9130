"""Judge watts, settled clocks and joules of sustained kernels: of our own points by leaving each out, and of a measured table.

    python scripts/research/judge_power.py [SKU=TABLE.csv ...]

A table has the columns of a GEMM table with clock_mhz_sustained and power_w_sustained, or is one of measure_programs.py, whose `joules`
are a step's by NVML's energy counter; nothing is fitted to either. What only a card could tell is said at the end.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure_programs import config_of, predicted

import tilewise
from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels import power
from tilewise.hwdb.kernels.gemm import fitted as gemm
from tilewise.hwdb.times import State

SKUS = ("h100-sxm5-80gb", "h200-sxm-141gb")
HEAD = "| GPU | points | what | mean error, % | bias, % | 90 % within, % | interval covers, % |"
NOT_JUDGED = "Not judged, for want of a card: joules of decode and of graphs, the power between kernels, other SKUs."


def own(name: str) -> Iterator[str]:
    """Points of the calibration, each by a fit that has not seen it."""
    gpu = Database.packaged().gpu(name)
    points = power.points_of(gpu.calibration, gpu.sku)
    watts, clock = power.cross_fitted(points, gpu.sku)
    for word, off in (("W", watts), ("clock", clock)):
        bound = np.quantile(np.abs(off), 0.9)
        yield line(name, f"{len(off)} own, each left out", word, off, np.abs(off) <= bound)


def refereed(name: str, path: Path) -> Iterator[str]:
    """Rows of a table that nothing was fitted to, by the model of today's code: joules of steps, or of kernels W, clock, time and J."""
    gpu = Database.packaged().gpu(name)
    with path.open(newline="", encoding="utf-8") as stream:
        every = list(csv.DictReader(stream))
    if "joules" in every[0]:
        yield stepped(name, path, [row for row in every if row["joules"]])
        return
    rows = [row for row in every if row.get("power_w_sustained")]
    texts = {key: np.array([row[key] for row in rows]) for key in ("kind", "dtype")}
    columns = {key: np.array([float(row[key]) for row in rows]).astype(np.int64) for key in ("m", "n", "k")}
    columns |= {"kind": texts["kind"], "dtype": np.char.replace(texts["dtype"], "fp8row", "fp8_row")}
    columns |= {"state": np.full(len(rows), "burst"), "held": np.zeros(len(rows), bool)}
    table = gemm.table({"gemm": columns})
    measured = {
        key: np.array([float(row[key]) for row in rows])
        for key in ("power_w_sustained", "clock_mhz_sustained", "time_us_sustained")
    }
    watts, seconds = measured["power_w_sustained"], measured["time_us_sustained"] * 1e-6
    model = power.from_calibration(gpu.calibration, gpu.sku)
    yield from _compared(
        name,
        f"{len(rows)} of {path.parent.name}",
        gpu,
        table,
        model,
        watts,
        measured["clock_mhz_sustained"] * 1e6,
        seconds,
    )


def stepped(name: str, path: Path, rows: list[dict[str, str]]) -> str:
    said = [predicted(tilewise, config_of(row["model"]), name, row["mode"], row["phase"])[-3:] for row in rows]
    value, low, high = np.array(said, float).T
    measured = np.array([float(row["joules"]) for row in rows])
    inside = (low <= measured) & (measured <= high)
    return line(name, f"{len(rows)} steps of {path.name}", "J", np.log(value / measured), inside)


def _compared(name, title, gpu: Gpu, table, model, watts, clock, seconds) -> Iterator[str]:  # type: ignore[no-untyped-def]
    burst = gpu._parts(table, State.BURST)
    settled = power.settle(table, burst, model, gpu.sku)
    times = power.sustain(table, burst, model, gpu.sku)
    error = model["watts_error"]
    joules = settled.power_w * times.time_s
    low, high = settled.power_w * times.low_s * np.exp(-error), settled.power_w * times.high_s * np.exp(error)
    found = (
        ("W", settled.power_w / watts, np.abs(np.log(settled.power_w / watts)) <= error),
        ("clock", settled.clock_hz / clock, np.abs(np.log(settled.clock_hz / clock)) <= model["clock_error"]),
        ("time", times.time_s / seconds, (times.low_s <= seconds) & (seconds <= times.high_s)),
        ("J", joules / (watts * seconds), (low <= watts * seconds) & (watts * seconds <= high)),
    )
    for word, ratio, inside in found:
        use = np.isfinite(ratio)
        yield line(name, title, word, np.log(ratio[use]), inside[use])


def line(name: str, title: str, word: str, off: np.ndarray, inside: np.ndarray) -> str:
    error = np.abs(np.exp(off) - 1)
    cells = 100 * error.mean(), 100 * (np.exp(np.median(off)) - 1), 100 * np.quantile(error, 0.9), 100 * inside.mean()
    return f"| {name} | {title} | {word} | {cells[0]:.1f} | {cells[1]:+.1f} | {cells[2]:.1f} | {cells[3]:.0f} |"


if __name__ == "__main__":
    tables = [(name, Path(path)) for name, _, path in (one.partition("=") for one in sys.argv[1:])]
    print(
        "\n".join(
            [
                HEAD,
                "|---|---|---|--:|--:|--:|--:|",
                *(one for name in SKUS for one in own(name)),
                *(one for pair in tables for one in refereed(*pair)),
            ]
        )
    )
    print(NOT_JUDGED)
