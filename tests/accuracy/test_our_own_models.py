"""Whole transformers models that we measured ourselves, none of them the referee's: the GPU's time, kernels and memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tilewise.client.cli import cli

MEASURED = Path(__file__).parent / "measured"


def judged(table: str) -> dict[str, Any]:
    """Quantities of a table by name, as `tilewise validate` states them."""
    arguments = ["validate", str(MEASURED / table), "--gpu", "h100-sxm5-80gb", "--format", "json"]
    run = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    (found,) = json.loads(run.stdout)["tables"]
    return {quantity["name"]: quantity["errors"] for quantity in found["quantities"]}


@pytest.mark.parametrize(
    ("table", "quantity", "bound"),
    [
        ("steps.csv", "busy time", 0.035),
        ("steps.csv", "kernels", 0.015),
        ("steps.csv", "wall time", 0.14),
        ("steps_compiled.csv", "busy time", 0.08),
        ("memory.csv", "peak memory", 0.02),
    ],
)
def test_the_mean_error_stays_within_its_bound(table: str, quantity: str, bound: float) -> None:
    assert judged(table)[quantity]["mean"] < bound


def test_the_intervals_of_steps_cover_what_they_claim() -> None:
    """The part of the variance that operators share (server/intervals.toml) was measured by these steps; the clock's state comes besides.

    They are covered a little too well (122 of 128), since the other cards of the H200 need what these do not.
    """
    assert 0.88 <= judged("steps.csv")["busy time"]["covered"] <= 0.96
