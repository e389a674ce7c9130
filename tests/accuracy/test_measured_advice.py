"""Advice against what was measured on an H100 (scripts/research/measure_advice.py), as this version and its calibration predict it now."""

import csv
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.server.advise.asked import Asked, as_changes, figures
from tilewise.server.advise.subject import Subject
from tilewise.server.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts" / name) for name in ("research", "docs")]
PLAN, TABLES = import_module("plan_advice"), import_module("advice")
H100 = Database.packaged().gpu(PLAN.GPU)
WITHIN = 0.03  # of the measured ratio
LARGEST_REGRET, LEAST_CORRELATION = 0.03, 0.93


def rows(name: str) -> list[dict[str, str]]:
    with (ROOT / "tests" / "accuracy" / "measured" / name).open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if not row["reason"]]


ADVISED = [row for row in rows("advice_pairs.csv") if row["changes"]]
NEIGHBOURS = rows("advice_neighbours.csv")


def predicted(config: dict[str, Any], batch: int, shapes: list[dict[str, int]]) -> np.ndarray:
    """Seconds of the step of every shape."""
    subject = Subject(json.dumps(config), {})
    work = Workload(phase="train", batch=batch, sequence=PLAN.SEQUENCE)
    return figures(subject, [Asked(H100, work)], as_changes(subject, shapes)).time_s[0]


@pytest.mark.parametrize("row", ADVISED, ids=lambda row: f"{row['model']}: {row['changes']}")
def test_the_gain_of_an_advised_shape_is_what_was_measured(row: dict[str, str]) -> None:
    config, batch = PLAN.MODELS[row["model"]]
    sizes = {words[0]: int(words[3]) for change in row["changes"].split(", ") if (words := change.split())}
    before, after = predicted(config, batch, [{}, sizes])
    assert after / before == pytest.approx(float(row["measured_ratio"]), abs=WITHIN)


def test_six_architectures_were_measured_and_none_was_advised_to_be_slower() -> None:
    assert {row["model"] for row in ADVISED} == set(PLAN.MODELS)
    assert all(float(row["measured_ratio"]) < 1 for row in ADVISED)


@pytest.mark.parametrize("base", PLAN.BASES)
def test_the_shape_predicted_fastest_is_among_the_fastest_measured(base: str) -> None:
    config, batch = PLAN.BASES[base]
    near = [row for row in NEIGHBOURS if row["base"] == base]
    size = np.minimum(1.0, np.array([float(row["parameters"]) for row in near]) / own(near))
    ours = predicted(config, batch, [json.loads(row["sizes"]) for row in near]) / size
    real = np.array([float(row["measured_ms"]) for row in near]) / size
    correlate: Callable[..., float] = TABLES.correlation
    assert len(near) >= 150
    assert real[ours.argmin()] / real.min() - 1 <= LARGEST_REGRET
    assert correlate(ours, real) >= LEAST_CORRELATION


def own(near: list[dict[str, str]]) -> float:
    """Parameters of the base itself."""
    return next(float(row["parameters"]) for row in near if row["index"] == "0")
