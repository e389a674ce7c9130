"""How good predictions are: a table that is printed, and bounds that a change must not break.

The measured truth is no part of the project; without it the bounds on the calibrations' own held-out points remain.
"""

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tilewise.hwdb.database import Database

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "docs"))
RULES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "bounds.toml").read_text())
BOUNDS: dict[str, float] = RULES["headline"]
CALIBRATIONS = [
    (sku, name) for sku in Database.packaged().skus() for name in Database.packaged().calibrations(sku)
]  # fmt: skip


def test_no_line_of_the_accuracy_table_exceeds_its_bound(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = import_module("accuracy")
    found = script.validations(shared)
    lines = [(sku, *line) for sku, tables in found.items() for line in script.headlines(tables)]
    assert {label for _, label, _ in lines} == set(BOUNDS)
    with capsys.disabled():
        print()
        for sku, label, error in lines:
            print(
                f"{sku:15s} {label:58s} {error.points:4d} points  mean {error.mean:6.1%}  at most {bound(sku, label):.1%}"
            )
    assert [(sku, label) for sku, label, error in lines if error.mean > bound(sku, label)] == []


def bound(sku: str, label: str) -> float:
    """The largest mean error of a line, on this GPU if it has one of its own."""
    return float(RULES.get(sku, {}).get(label, BOUNDS[label]))


@pytest.mark.parametrize(("sku", "name"), CALIBRATIONS)
def test_a_packaged_calibration_predicts_its_own_held_out_points(sku: str, name: str) -> None:
    card: dict[str, Any] = Database.packaged().calibration(sku, name).card
    judged = {each["family"]: each for each in card["held_out"] if each["group"] == "all"}
    assert judged, "a calibration that ships was judged"
    bounds = RULES["published" if card.get("trust") == "published" else "held_out"]
    low, high = bounds["covered"]
    for family, entry in judged.items():
        assert entry["mean_error"] <= bounds.get(family, bounds["other"]), family
        assert low <= entry["interval_coverage"] <= high + 1 / entry["points"], (
            family
        )  # one point is no more than chance
