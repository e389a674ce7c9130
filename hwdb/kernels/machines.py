"""What the next machine of a SKU differs by from the one that was measured, and what a SKU of the same dies does.

A calibration that pools several cards knows it from its own points; one of a single card is widened by what cards of
another SKU were seen to differ by (machines.toml).
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.kinds import by_code
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, OperatorTable
from tilewise.hwdb.times import Times, Trust


def between_cards(calibration: Calibration, family: str, time_s: Floats) -> Floats:
    """Log by which another card's time may differ (90 %), shape of `time_s`; 0 for a calibration of several cards."""
    if pools(calibration):
        return np.zeros_like(time_s)
    cards = facts()["cards"]
    found: Floats = np.array(cards[family])[np.searchsorted(cards["edges_s"], time_s)]
    return found


def twins(table: OperatorTable, times: Times, sku: Sku, there: Sku) -> Times:
    """Times that a twin's kernels take with this SKU's figures: trusted as a datasheet, less sure the more its memory differs."""
    facts_ = facts()["twins"]
    share = abs(np.log(sku.hbm_bytes_per_s / there.hbm_bytes_per_s)) / np.log(facts_["hbm_ratio"])
    error = share * by_code(lambda record: float(facts_.get(record.name, 0.0)))[table.kind]
    low, high = (np.hypot(np.log(bound / times.time_s), error) for bound in (times.low_s, times.high_s))
    return replace(
        times, low_s=times.time_s * np.exp(-low), high_s=times.time_s * np.exp(high),
        trust=np.full(len(times), int(Trust.DATASHEET)),
    )  # fmt: skip


def between_hosts(calibration: Calibration) -> float:
    """Log by which another host's launch costs may differ; 0 for a calibration of several machines."""
    return 0.0 if pools(calibration) else math.log(host_factor())


def pools(calibration: Calibration) -> bool:
    """Whether kernels were timed on several cards; a run of collectives alone, on several ranks, brings no kernel."""
    mine = calibration.card.get("gpu", {}).get("serial")
    return any(run["ranks"] == 1 and run["gpu"]["serial"] != mine for run in calibration.card.get("others", ()))


def host_factor() -> float:
    """By which hosts of one SKU differ in what a launch costs."""
    return float(facts()["hosts"]["factor"])


@cache
def facts() -> dict[str, Any]:
    """machines.toml."""
    return tomllib.loads((files("tilewise.hwdb.kernels") / "machines.toml").read_text(encoding="utf-8"))
