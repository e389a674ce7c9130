"""Fit the models of every family, and judge them on the points that were never fitted.

A model module is tilewise.hwdb.kernels.<name> with

    MEASURED: tuple[str, ...]       measurement families that it stands on (default: its own name)
    from_calibration(calibration: Calibration, sku: Sku) -> Mapping[str, NDArray | JSON value]
        the model, fitted to the rows whose `held` is False; what is no array goes into the .json
        with SIBLINGS = True it takes a third argument, the measured calibrations of GPUs with the same SMs and software
    table(measurements: Mapping[str, Measurements]) -> OperatorTable
        one row a point, families in MEASURED's order; without it a model is fitted but not judged
    predict(table, model, sku, state) -> Times
    group(table, row) -> str        under which name the card sums a row's error up (default: operator or number format)

The held-out error goes through `predict`, as an answer does.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tilewise.calibration.seal import settle
from tilewise.hwdb.arrays import packed
from tilewise.hwdb.calibration import ARRAYS, Calibration, Measurements, canonical
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OPS, OperatorTable
from tilewise.hwdb.times import State, Trust

MODELS = ("gemm", "grouped_gemm", "attention", "memory", "collective", "launch", "power")


def fit(calibration: Calibration, into: Path, only: Sequence[str] = ()) -> Calibration:
    """The calibration with models fitted anew, as a calibration of its own in `into`; the measurements are the same.

    only: models to fit, the others stay as they are; empty: all. Raises InvalidInput for one that does not exist.
    """
    for name in only:
        if name not in MODELS:
            raise InvalidInput(
                f"no model is called {name!r}; there are {', '.join(MODELS)}", reason="BAD_FAMILY", field="only"
            )
    if calibration.sku not in Database.packaged().skus():
        return calibration  # a rehearsal on a CPU: there is nothing to model
    calibration.measured()
    sku = Database.packaged().sku(calibration.sku)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as name:
        draft = Path(name)
        shutil.copytree(calibration.folder, draft, dirs_exist_ok=True)
        (draft / "models").mkdir(exist_ok=True)
        wanted = [name for name in MODELS if not only or name in only]
        notes: dict[str, str] = dict(calibration.card["models"])
        errors: list[dict[str, Any]] = [
            entry for entry in calibration.card["held_out"] if entry["family"] not in wanted
        ]
        for model in wanted:
            for path in (draft / "models").glob(f"{model}.*"):
                path.unlink()
            notes[model] = _fit_one(model, calibration, sku, draft, errors)
        card = {**calibration.card, "models": notes, "held_out": errors}
        (draft / "card.json").write_bytes(canonical(card))
        return settle(draft, into)


def _fit_one(name: str, calibration: Calibration, sku: Sku, draft: Path, errors: list[dict[str, Any]]) -> str:
    """Fit one model and append its errors; returns the note for the card."""
    module = _module(name)
    if module is None:
        return "no model in this version"
    families = [family for family in getattr(module, "MEASURED", (name,)) if family in calibration.families()]
    if not families:
        return "not measured"
    # models are fitted in the order of MODELS; a later one may ask an earlier one
    more = (siblings(calibration, sku),) if getattr(module, "SIBLINGS", False) else ()
    model = dict(module.from_calibration(Calibration(draft), sku, *more))
    write_model(draft, name, model)
    if hasattr(module, "table"):
        errors += _errors(
            name, module, model, {family: _judged(calibration.measurements(family)) for family in families}, sku
        )
    return "fitted"


def siblings(calibration: Calibration, sku: Sku) -> list[tuple[Calibration, Sku]]:
    """The packaged, measured calibrations of other SKUs with the same SMs, clock and software, where their points are at hand."""
    database, found = Database.packaged(), []
    for other in map(database.sku, database.skus()):
        chosen = database.active(other.name)
        if other.name == sku.name or _sms(other) != _sms(sku) or not chosen:
            continue
        theirs = database.calibration(other.name, chosen)
        if theirs.trust is Trust.MEASURED and theirs.card["stack"] == calibration.card["stack"] and _has_points(theirs):
            found.append((theirs, other))
    return found


def _sms(sku: Sku) -> tuple[object, ...]:
    return sku.generation, sku.sm_count, sku.clock_boost_hz


def _has_points(calibration: Calibration) -> bool:
    return (calibration.folder / "measurements").is_dir()  # an installed wheel leaves them out


def write_model(folder: Path, name: str, model: Mapping[str, Any]) -> None:
    """Write a model into a calibration's folder: arrays into a .safetensors, the rest into a .json."""
    arrays = {key: value for key, value in model.items() if isinstance(value, np.ndarray)}
    plain = {key: value for key, value in model.items() if key not in arrays}
    if arrays:
        (folder / "models" / f"{name}{ARRAYS}").write_bytes(packed(arrays))
    if plain:
        (folder / "models" / f"{name}.json").write_bytes(canonical(plain))


def _module(name: str) -> ModuleType | None:
    """What fits a model: `fitted` of its folder, or its one file."""
    where = f"tilewise.hwdb.kernels.{name}"
    if (spec := find_spec(where)) is None:
        return None
    full = f"{where}.fitted" if spec.submodule_search_locations else where
    module = importlib.import_module(full) if find_spec(full) else None
    return module if hasattr(module, "from_calibration") else None


def _judged(columns: Measurements) -> Measurements:
    """The burst points that were held out."""
    rows = columns["held"] & (columns["state"] == "burst")
    return {name: values[rows] for name, values in columns.items()}


def _errors(
    name: str, module: ModuleType, model: Mapping[str, Any], apart: Mapping[str, Measurements], sku: Sku
) -> list[dict[str, Any]]:
    """Held-out error of a model: all points together, then by number format or operator."""
    table: OperatorTable = module.table(apart)
    if hasattr(module, "measured_s"):  # a model may state times in another convention than the protocol's
        measured = module.measured_s(apart)
    else:
        measured = np.concatenate([columns["time_us"] for columns in apart.values()]) * 1e-6
    times = module.predict(table, model, sku, State.BURST)
    answered = np.isfinite(times.time_s)
    ratio = times.time_s / measured
    covered = (times.low_s <= measured) & (measured <= times.high_s)
    name_of = getattr(module, "group", _group)
    groups = np.array([name_of(table, row) for row in range(len(table))])
    found = []
    for group in ("all", *sorted(set(groups))):
        rows = answered & ((groups == group) | (group == "all"))
        if rows.any():
            error = np.abs(ratio[rows] - 1)
            found.append(
                {
                    "family": name,
                    "group": group,
                    "points": int(rows.sum()),
                    "refused": int((~answered & ((groups == group) | (group == "all"))).sum()),
                    "mean_error": round(float(error.mean()), 5),
                    "p90_error": round(float(np.quantile(error, 0.9)), 5),
                    "bias": round(float(np.median(ratio[rows]) - 1), 5),
                    "interval_coverage": round(float(covered[rows].mean()), 4),
                }
            )
    return found


def _group(table: OperatorTable, row: int) -> str:
    return OPS[table.op[row]] or Precision(int(table.precision[row])).name.lower()
