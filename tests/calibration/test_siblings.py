"""Whose measured products teach a GPU's model besides its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewise.calibration import fit
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database

HWDB = Database(Path(__file__).parents[2] / "hwdb")  # with the measurements, which an installed package leaves out


def measured(name: str) -> Calibration:
    chosen = HWDB.active(name)
    assert chosen
    return HWDB.calibration(name, chosen)


@pytest.fixture(autouse=True)
def repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "Database", SimpleNamespace(packaged=lambda: HWDB))


@pytest.mark.parametrize(
    ("name", "sibling"), [("h100-sxm5-80gb", "h200-sxm-141gb"), ("h200-sxm-141gb", "h100-sxm5-80gb")]
)
def test_gpus_with_the_same_sms_and_software_teach_each_other(name: str, sibling: str) -> None:
    assert [sku.name for _, sku in fit.siblings(measured(name), HWDB.sku(name))] == [sibling]


def test_other_software_or_other_sms_teach_nothing() -> None:
    other: Any = SimpleNamespace(card={"stack": {"torch": "2.10"}})
    assert fit.siblings(other, HWDB.sku("h100-sxm5-80gb")) == []
    assert fit.siblings(measured("h100-sxm5-80gb"), HWDB.sku("b200-sxm-180gb")) == []
