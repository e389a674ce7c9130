"""Fit and answer of a published model: the law of each software, a residual over all of them, intervals by shape.

Rows of one shape share their fold, so that no interval comes from a shape that the nets had seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels.learning import extrapolation, law, mlp, regression
from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.learning.opened import Opened
from tilewise.hwdb.kernels.software import Origin, Software
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints, OperatorTable

PLAN = mlp.Training(hidden=(96, 48), epochs=120, batch=256, rate=4e-3, decay=0.1)
NETS = 3
LIMIT = 1.0  # the residual's largest factor, log


class Work(Record):
    """Walls of rows at datasheet rates, and what else a family knows; arrays of shape (rows,).

    features: what the residual may depend on besides the law; place: up to three log2 sizes, shape (rows, dims);
    added: features that calibrations have known since later, the newest last
    """

    compute_s: Floats
    memory_s: Floats
    features: Sequence[Any]
    place: Floats
    tiles: Floats
    waves: Floats
    added: Sequence[Any] = ()


class Points(Record):
    """Published times. software: index into `origins`; gpu: index into `skus`, the first is the one that is fitted for."""

    table: OperatorTable
    software: Ints
    origins: tuple[Origin, ...]
    gpu: Ints
    skus: tuple[Sku, ...]
    shapes: NDArray[np.str_]
    measured_s: Floats

    def __getitem__(self, rows: NDArray[np.bool_]) -> Points:
        return Points(
            self.table.select(rows), self.software[rows], self.origins, self.gpu[rows], self.skus, self.shapes[rows],
            self.measured_s[rows],
        )  # fmt: skip


Worker = Callable[[OperatorTable, Chip, Ints, Software], Work]


def fit(
    points: Points, worker: Worker, plan: mlp.Training = PLAN, limit: float = LIMIT, nets: int = NETS
) -> dict[str, Any]:
    """The arrays and entries of a model. `worker` gives the walls of a family; `limit`: the residual's largest log."""
    software, chip = Software.listed(points.origins), Chip.of(points.skus, points.gpu)
    work = worker(points.table, chip, points.software, software)
    constants = law.fit(points.software, work.compute_s, work.memory_s, points.measured_s, len(points.origins))
    rows = _rows(work, constants, points.software, chip, len(points.origins), len(points.skus))
    bounds = np.stack([rows.features.min(0), rows.features.max(0)])
    folds = np.array([_fold(shape) for shape in points.shapes.tolist()])
    fitted = regression.fit(rows, points.measured_s, plan, nets=nets, limit=limit, folds=folds)
    return {
        "software": [origin.entry(int((points.software == at).sum())) for at, origin in enumerate(points.origins)],
        "together": [sku.name for sku in points.skus],
        "constants": constants,
        "bounds": bounds,
    } | fitted.to_arrays()


class Model(Record):
    """A fitted model, opened."""

    software: Software
    constants: Floats
    bounds: NDArray[np.float32]
    residual: regression.Regression
    together: int

    @classmethod
    def open(cls, model: Mapping[str, Any]) -> Model:
        residual = regression.Regression.from_arrays(model)
        software = Software.of(model, str(model["law"]).rpartition(".")[2])
        return cls(software, model["constants"], model["bounds"], residual, len(model["together"]))


OPEN = Opened(Model.open)


def answer(
    table: OperatorTable, software: Ints, model: Mapping[str, Any], sku: Sku, worker: Worker
) -> tuple[regression.Answer, Work, Floats]:
    """The answer of each row by its software, its walls, and its launch floor in seconds.

    A SKU that the model was not fitted for has the dies of the first that it was: it takes as much longer as the law says.
    """
    opened = OPEN(model)
    constants, which = opened.constants[software], opened.software
    fitted = sku if sku.name in model["together"] else _sku(model["together"][0])
    chip = Chip.one(fitted, model, len(table))
    work = worker(table, chip, software, which)
    rows = _rows(work, opened.constants, software, chip, len(which.origins), opened.together)
    known = rows.features[:, : opened.bounds.shape[1]]  # an older calibration lacks what was added since
    inside = replace(
        rows, features=np.minimum(np.maximum(known, opened.bounds[0]), opened.bounds[1])
    )  # nets know nothing beyond what they saw
    found = extrapolation.widened(opened.residual.predict(inside), str(model["law"]))
    if fitted is not sku:
        # bursts of tuners: the datasheet's clock and memory decide, not the power that long runs are held to
        mine = worker(table, Chip.of([sku], np.zeros(len(table), np.int64)), software, which)
        there = law.seconds(constants, work.compute_s, work.memory_s)
        ratio = law.seconds(constants, mine.compute_s, mine.memory_s) / there
        found = replace(found, **{name: getattr(found, name) * ratio for name in ("time_s", "low_s", "high_s")})
        work = mine
    return found, work, constants[:, 0]


def _sku(name: str) -> Sku:
    from tilewise.hwdb.database import Database

    return Database.packaged().sku(name)


def _rows(work: Work, constants: Floats, software: Ints, chip: Chip, names: int, together: int) -> regression.Rows:
    base = law.seconds(constants[software], work.compute_s, work.memory_s)
    compute, memory = work.compute_s / constants[software, 1], work.memory_s / constants[software, 2]
    columns = [
        *work.features, np.log2(base * 1e6), np.log2(compute * 1e6), np.log2(memory * 1e6), compute / (compute + memory),
        constants[software, 0] / base, np.log2(chip.sms),
    ]  # fmt: skip
    columns += [software == one for one in range(names)] + [chip.code == one for one in range(together)]
    columns += work.added
    features = np.ascontiguousarray(np.array(columns, np.float32).T)
    return regression.Rows(base, features, work.place, software, software)


def _fold(shape: str) -> int:
    return int.from_bytes(hashlib.sha256(shape.encode()).digest()[4:8], "big") % regression.FOLDS
