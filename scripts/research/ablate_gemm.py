"""What each part of the GEMM model buys: fits without it, judged on the held-out points of the packaged calibration.

    python scripts/research/ablate_gemm.py [--gpu SKU] [TRUTH.csv]

TRUTH.csv: a table with columns kind, m, n, k, dtype, time_us to judge by as well (never fitted). Takes some minutes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels import roofline
from tilewise.hwdb.kernels.gemm import fitted as gemm
from tilewise.hwdb.kernels.gemm.choice import Choice, ChoiceModel, Problem
from tilewise.hwdb.kernels.learning import mlp, regression
from tilewise.hwdb.times import State

PLAN = mlp.Training(hidden=(128, 64), epochs=120, batch=128, rate=4e-3, decay=0.1)
SHAPE_ONLY = 5  # the first features: log m, n, k, alignment, groups
Columns = Mapping[str, Any]


def truth(path: str) -> Columns:
    with open(path, newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["time_us"] and row["dtype"] in gemm.PRECISIONS]
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in ("kind", "dtype")}
    columns |= {name: np.array([float(row[name]) for row in rows]) for name in ("m", "n", "k", "time_us")}
    return columns


def fixed(choice: Choice) -> Choice:
    """One tile for everything: what a model without kernel choice assumes."""
    ones = np.ones_like(choice.tile_m)
    return replace(
        choice,
        index=choice.index * 0,
        tile_m=128 * ones,
        tile_n=256 * ones,
        split=ones,
        algorithm=choice.algorithm * 0 + 66,
    )


class Variant:
    """Rows of a set of problems with or without kernel choice."""

    def __init__(self, sku: Any, choice: ChoiceModel) -> None:
        self.sku, self.choice = sku, choice

    def rows(self, p: Problem, chosen: bool) -> regression.Rows:
        choice = self.choice.choose(p, self.sku.sm_count)
        work = gemm.physics(p, choice if chosen else fixed(choice), self.sku)
        return gemm.rows_of(p, work, self.sku.sm_count)


def narrow(rows: regression.Rows) -> regression.Rows:
    return replace(rows, features=rows.features[:, :SHAPE_ONLY])


def net(rows: regression.Rows, time_s: Any, nets: int) -> Any:
    target = np.log(time_s / rows.base_s)[:, None]
    return [mlp.train(rows.features, target, 1, mlp.huber(0.05), replace(PLAN, seed=seed)) for seed in range(nets)]


def answer(nets: Any, rows: regression.Rows) -> Any:
    return rows.base_s * np.exp(sum(one(rows.features)[:, 0] for one in nets) / len(nets))


def line(name: str, judged: list[tuple[Any, Any, Any]]) -> None:
    cells = []
    for predicted, measured, bf16 in judged:
        error = np.abs(predicted / measured - 1)[bf16]
        cells.append(f"{100 * np.nanmean(error):6.1f} {100 * np.nanmedian(error):6.1f}")  # a refusal is no error
    print(f"{name:58}" + "   ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h100-sxm5-80gb")
    parser.add_argument("table", nargs="?")
    options = parser.parse_args()
    gpu = Database.packaged().gpu(options.gpu)
    calibration: Any = gpu.calibration
    points = calibration.measurements("gemm")
    use = (points["state"] == "burst") & (points["sets"] <= gemm.SETS)
    points = {name: values[use] for name, values in points.items()}
    time_s = gemm.measured_s({"gemm": points})
    held = points["held"]
    variant = Variant(gpu.sku, ChoiceModel.from_arrays(calibration.model("gemm")))
    sets = [({name: values[held] for name, values in points.items()}, time_s[held])]
    if options.table:
        table = truth(options.table)
        sets.append((table, table["time_us"] * 1e-6))
    kept, kept_s = {name: values[~held] for name, values in points.items()}, time_s[~held]
    problems = [gemm.problem_of(columns) for columns, _ in sets]
    bf16 = [columns["dtype"] == "bf16" for columns, _ in sets]

    def report(name: str, predictions: list[Any]) -> None:
        line(name, [(p, t, b) for p, (_, t), b in zip(predictions, sets, bf16, strict=True)])

    titles = "   ".join(f"{title:>13}" for title in ("held out", "table")[: len(sets)])
    print(f"{'bf16 GEMM, mean and median absolute error, %':58}{titles}")
    tables = [gemm.table({"gemm": {**columns, "sets": np.ones(len(t)), "state": np.full(len(t), "burst"),
                                   "held": np.zeros(len(t), bool)}}) for columns, t in sets]  # fmt: skip
    report("roofline with measured ceilings", [roofline.predict(t, {}, gpu.sku, State.BURST).time_s for t in tables])
    train = {chosen: variant.rows(gemm.problem_of(kept), chosen) for chosen in (False, True)}
    judged = {chosen: [variant.rows(p, chosen) for p in problems] for chosen in (False, True)}
    scale = {chosen: float(np.exp(np.median(np.log(kept_s / train[chosen].base_s)))) for chosen in train}
    report("physics, one tile for all, scaled once", [scale[False] * rows.base_s for rows in judged[False]])
    report("physics of the chosen kernel, scaled once", [scale[True] * rows.base_s for rows in judged[True]])
    nets = net(narrow(train[False]), kept_s, 2)
    report("residual on sizes and alignment alone", [answer(nets, narrow(rows)) for rows in judged[False]])
    nets = net(train[False], kept_s, 2)
    report("+ tiles, waves and walls of one fixed tile", [answer(nets, rows) for rows in judged[False]])
    nets = net(train[True], kept_s, 2)
    report("+ the kernel that the library will choose", [answer(nets, rows) for rows in judged[True]])
    nets = net(train[True], kept_s, 6)
    report("+ six nets instead of two", [answer(nets, rows) for rows in judged[True]])
    model = calibration.model("gemm")
    report("+ distilled into one, as it answers", [gemm.predict(t, model, gpu.sku, State.BURST).time_s for t in tables])
    order = np.random.default_rng(0).permutation(len(kept_s))
    for share, name in (
        (0.5, "half of the points"),
        (0.25, "a quarter"),
        (0.1, "a tenth: a calibration of two minutes in all"),
    ):
        some = order[: round(share * len(order))]
        nets = net(train[True][some], kept_s[some], 6)
        report(f"  the same with {name} ({len(some)})", [answer(nets, rows) for rows in judged[True]])


if __name__ == "__main__":
    main()
