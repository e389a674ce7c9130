"""How the error of a kernel model grows beyond its measurements: fitted without their outer octaves, judged on those.

    python scripts/research/measure_extrapolation.py [--write] [--tables FOLDER] [FAMILY ...]

For every size of a family, at both ends, the outermost octaves of each kernel's points are left out of a fit and then
predicted. FOLDER holds gemm.csv, attention.csv and moe.csv, for the models of others' measurements. What such a row's error exceeds the interval by, for an octave of distance, is the growth that holds
90 % of them. --write puts it where the kernel models read it (hwdb/kernels/learning/extrapolation.toml).
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure_transfer import loaded
from msgspec.structs import replace

from tilewise.calibration.published import points
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.attention import fitted as attention
from tilewise.hwdb.kernels.attention import physics as attention_physics
from tilewise.hwdb.kernels.attention import published as published_attention
from tilewise.hwdb.kernels.attention.choice import backend, grid
from tilewise.hwdb.kernels.gemm import fitted as gemm
from tilewise.hwdb.kernels.gemm import published as published_gemm
from tilewise.hwdb.kernels.grouped_gemm import fitted as grouped
from tilewise.hwdb.kernels.grouped_gemm import published as published_experts
from tilewise.hwdb.kernels.learning import mlp, regression, residual
from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.learning.regression import Rows
from tilewise.hwdb.kernels.memory import fitted as memory
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Layout

ROOT = Path(__file__).resolve().parents[2]
SKUS = ("h100-sxm5-80gb", "h200-sxm-141gb")
OUTER = 3.0  # octaves that are left out
SAMPLE = 3  # one in so many products is taken, which is plenty
COVERAGE = 0.9
FAR_MIN = 30  # rows below which an end of a size says nothing
PLAIN = ("memory", "norms")  # whose kernels stand for all that are bound by memory: their law is one
HEAD = f"""# By how much log(time) may lie off for every octave between a question and the nearest measurement of its kernel, beyond what
# the interval among the measurements holds: {COVERAGE:.0%} of points of the H100 and the H200 that were left out of a fit, the
# outermost `reach` octaves of every size at both ends. growth: of all of them, as far as that; beyond: of the size and end
# that went most wrong, farther out, where nothing was tested. Written by scripts/research/measure_extrapolation.py.
reach = {OUTER}
"""
PLAN = mlp.Training(hidden=(96, 48), epochs=40, batch=256, rate=4e-3, decay=0.1)
LAWS = ("published.gemm", "published.attention", "published.grouped_gemm")
TABLED = ("mi355x", "b200-sxm-180gb")  # GPUs of unlike kernels
Refit = Callable[[Any], tuple[Rows, regression.Regression]]
Mask = Any


def products(calibration: Calibration, sku: Sku) -> tuple[Any, Refit]:
    model = gemm.GemmModel.from_arrays(calibration.model("gemm"))
    columns = calibration.measurements("gemm")
    use = (columns["state"] == "burst") & (columns["sets"] <= gemm.SETS) & (np.arange(len(columns["m"])) % SAMPLE == 0)
    some = {name: values[use] for name, values in columns.items()}
    took_s = gemm.measured_s({"gemm": some})
    rows, _ = gemm.evaluate(gemm.problem_of(some), model.choice, sku)
    return took_s, lambda kept: (rows, regression.fit(rows[kept], took_s[kept], PLAN, nets=1))


def experts(calibration: Calibration, sku: Sku) -> tuple[Any, Refit]:
    columns = _burst(calibration, "grouped_gemm")
    points, took_s = grouped.table({"grouped_gemm": columns}), grouped.measured_s({"grouped_gemm": columns})
    work = grouped.work(points, sku)

    def refit(kept: Mask) -> tuple[Rows, regression.Regression]:
        of = [kept & (points.layout == layout) for layout in Layout]
        constants = np.stack([grouped._law(work[rows], took_s[rows], sku) for rows in of])
        rows = grouped._rows(points, work, constants, sku)
        return rows, regression.fit(rows[kept], took_s[kept], grouped.PLAN, nets=2, limit=1.0)

    return took_s, refit


def attentions(calibration: Calibration, sku: Sku) -> tuple[Any, Refit]:
    columns = _burst(calibration, "attention")
    took_s = attention.measured_s({"attention": columns})
    table = attention.table({"attention": columns})
    cut = grid(table, backend(table), sku.sm_count)
    work, fits = attention_physics.work(table, cut, sku), attention_physics.fit_of(table, cut)

    def refit(kept: Mask) -> tuple[Rows, regression.Regression]:
        at = np.flatnonzero(kept)
        part = (attention_physics._take(work, at), attention_physics._take(cut, at), fits[at], took_s[at], sku)
        model = dict(zip(("constants", "efficiency"), attention_physics.fit(*part), strict=True))
        rows = attention._rows(table, cut, work, attention._walls(table, cut, work, model, sku), sku)
        spent = attention_physics.cross_fitted(*part)
        seen = attention._rows(table.select(at), part[1], part[0], spent, sku)
        return rows, regression.fit(seen, took_s[at], attention.PLAN, nets=2, limit=attention.LIMIT)

    return took_s, refit


def traffic(calibration: Calibration, sku: Sku) -> tuple[Any, Refit]:
    points = memory.Points.of({name: _burst(calibration, name) for name in PLAIN}, sku)

    def refit(kept: Mask) -> tuple[Rows, regression.Regression]:
        _, fitted, rows = memory._fit(points, kept)
        return rows, fitted

    return points.measured_s, refit


def tabled(law: str, folder: Path, sku: str) -> points.Points | None:
    """One GPU's rows of a folder of public tables; None where there are none."""
    table = "moe" if law.endswith("grouped_gemm") else law.rpartition(".")[2]
    return points.points(table, {sku: loaded(folder, table, sku)})


def published(law: str, found: points.Points) -> tuple[Any, Refit]:
    """Of a law such as "published.gemm"."""
    family = law.rpartition(".")[2]
    worker = {"gemm": published_gemm, "attention": published_attention, "grouped_gemm": published_experts}[
        family
    ].worker
    taken = found[np.arange(len(found.measured_s)) % SAMPLE == 0]
    limit = published_experts.LIMIT if family == "grouped_gemm" else residual.LIMIT

    def refit(kept: Mask) -> tuple[Rows, regression.Regression]:
        model = {"law": law, **residual.fit(taken[kept], worker, PLAN, limit, nets=1)}
        opened, chip = residual.Model.open(model), Chip.of(taken.skus, taken.gpu)
        work = worker(taken.table, chip, taken.software, opened.software)
        rows = residual._rows(work, opened.constants, taken.software, chip, len(taken.origins), 1)
        return replace(rows, features=np.clip(rows.features, *opened.bounds)), opened.residual

    return taken.measured_s, refit


FAMILIES = {"gemm": products, "grouped_gemm": experts, "attention": attentions, "memory": traffic}


def _burst(calibration: Calibration, family: str) -> dict[str, Any]:
    columns = calibration.measurements(family)
    use = columns["state"] == "burst"
    if family == "attention":
        use &= columns["backend"] != "cpu"
    return {name: values[use] for name, values in columns.items()}


def far(took_s: Any, refit: Refit) -> Iterator[np.ndarray]:
    """(octaves, |log error|, half-width, log error), shape (4, rows), of rows that a fit had to reach out for."""
    rows, _ = refit(np.ones(len(took_s), bool))
    for dim in range(rows.place.shape[1]):
        for side in (1.0, -1.0):
            outer = _outer(side * rows.place[:, dim], rows.group)
            if outer.sum() >= FAR_MIN:
                predicted, fitted = refit(~outer)
                yield _judged(predicted[outer], fitted, took_s[outer])


def _outer(place: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The outermost octaves of every group, where they are not most of it."""
    outer = np.zeros(len(place), bool)
    for one in np.unique(group):
        mine = group == one
        beyond = mine & (place > place[mine].max() - OUTER)
        if beyond.sum() <= mine.sum() / 2:
            outer |= beyond
    return outer


def _judged(rows: Rows, fitted: regression.Regression, took_s: np.ndarray) -> np.ndarray:
    answer = fitted.predict(rows)
    found = np.stack([
        answer.distance, np.abs(np.log(answer.time_s / took_s)), np.log(answer.high_s / answer.time_s),
        np.log(answer.time_s / took_s),
    ])  # fmt: skip
    return found[:, answer.distance > 0]


def growth(judged: np.ndarray) -> float:
    """Log of the interval's factor for each octave."""
    octaves, error, half, _ = judged
    return max(0.0, float(np.quantile((error - half) / octaves, COVERAGE)))


def measured(name: str, folder: Path | None) -> tuple[float, float]:
    """(growth, beyond) of a family."""
    db = Database.packaged()
    if name in LAWS:
        assert folder is not None
        both = [found for sku in TABLED if (found := tabled(name, folder, sku)) is not None]
        of_sku = [far(*published(name, found)) for found in both]
    else:
        of_sku = [far(*FAMILIES[name](db.calibration(sku, str(db.active(sku))), db.sku(sku))) for sku in SKUS]
    ends = [part for parts in of_sku for part in parts if part.shape[1] >= FAR_MIN]
    whole = np.concatenate(ends, axis=1)
    print(name, f"{whole.shape[1]} points")
    for low, high in ((0, 1), (1, 2), (2, 3), (3, 9)):
        octaves, error, half, bias = whole[:, (whole[0] > low) & (whole[0] <= high)]
        if len(error):
            held = (error <= half + growth(whole) * octaves).mean()
            print(
                f"  {low} to {high} octaves: {len(error):5d} points, median error {np.median(error):.3f}, "
                f"90 % {np.quantile(error, 0.9):.3f}, bias {np.median(bias):+.3f}, then held {held:.0%}"
            )
    return growth(whole), max(map(growth, ends))


def main() -> None:
    folder = Path(sys.argv[sys.argv.index("--tables") + 1]) if "--tables" in sys.argv else None
    names = [*FAMILIES, *(LAWS if folder else ())]
    wanted = [name for name in names if name in sys.argv] or names
    rows = []
    for name in wanted:
        inside, beyond = measured(name, folder)
        rows.append(f'"{name}" = {{ growth = {inside:.3f}, beyond = {beyond:.3f} }}')
    print("\n".join(rows))
    if "--write" in sys.argv:
        path = ROOT / "hwdb" / "kernels" / "learning" / "extrapolation.toml"
        path.write_text(f"{HEAD}\n[family]\n" + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
