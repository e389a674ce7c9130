"""Power: watts, settled clocks and joules against sustained points that a fit has not seen, and intervals that hold them."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels import power
from tilewise.hwdb.table import Floats, Kind, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State

HWDB = Database(Path(__file__).parents[3] / "hwdb")  # with the measurements, which an installed package leaves out
MEASURED = ("h100-sxm5-80gb", "h200-sxm-141gb")


@cache
def left_out(name: str) -> tuple[Floats, Floats]:
    gpu = HWDB.gpu(name)
    assert isinstance(gpu.calibration, Calibration)
    return power.cross_fitted(power.points_of(gpu.calibration, gpu.sku), gpu.sku)


@pytest.mark.parametrize("name", MEASURED)
def test_watts_and_clocks_of_a_sustained_kernel_are_known_to_eight_percent(name: str) -> None:
    watts, clock = left_out(name)
    assert len(watts) >= 30
    for off in (watts, clock):
        assert np.abs(np.exp(off) - 1).mean() < 0.08 and abs(np.median(off)) < 0.03


def test_a_format_of_a_single_point_costs_about_what_its_peak_says() -> None:
    """One sustained tf32 product made it a tenth of bf16's energy a FLOP, at twice the time."""
    for name in MEASURED:
        gpu = HWDB.gpu(name)
        assert isinstance(gpu.calibration, Calibration)
        joules = power.from_calibration(gpu.calibration, gpu.sku)["joule_per_flop"]
        tf32, bf16 = joules[2], joules[3]
        assert 1 < tf32 / bf16 < 8


def test_joules_are_as_unsure_as_the_watts_and_the_time() -> None:
    gpu = HWDB.gpu("h100-sxm5-80gb")
    assert gpu.calibration is not None
    table = _product(8192.0)
    times, model = gpu.predict(table), {**gpu.calibration.model("power"), "watts_error": 0.2}
    low, value, high = (float(joules[0]) for joules in power.energy(table, times, times, model, gpu.sku, np.zeros(1)))
    assert low == pytest.approx(value * times.low_s[0] / times.time_s[0] * np.exp(-0.2))
    assert high == pytest.approx(value * times.high_s[0] / times.time_s[0] * np.exp(0.2))


def test_a_burst_draws_what_it_demands_and_a_long_run_the_limit() -> None:
    """Joules of prefill were the limit's over the time of a burst: up to 28 % below NVML's energy counter on an H200."""
    gpu, table = HWDB.gpu("h200-sxm-141gb"), _product(8192.0)
    burst, long = (gpu.predict(table, state) for state in (State.BURST, State.SUSTAINED))
    short, steady = (
        gpu.energy(table, times, state, np.zeros(1))[1, 0]
        for times, state in ((burst, State.BURST), (long, State.SUSTAINED))
    )
    assert short / burst.time_s[0] > 1.1 * gpu.sku.tdp_w
    assert steady / long.time_s[0] == pytest.approx(gpu.sku.tdp_w)


def test_joules_are_the_same_whether_or_not_the_burst_times_were_kept() -> None:
    gpu, table = HWDB.gpu("h100-sxm5-80gb"), _product(8192.0)
    times, idle = gpu.predict(table, State.SUSTAINED), np.array([1e-4])
    assert times.burst is not None
    kept, worked_out = (gpu.energy(table, each, State.SUSTAINED, idle) for each in (times, replace(times, burst=None)))
    assert kept is not None and (kept == worked_out).all()


def _product(size: float) -> OperatorTable:
    columns = {
        "kind": np.array([int(Kind.GEMM)]), "m": np.array([size]), "n": np.array([8192]), "k": np.array([8192]),
        "precision": np.array([3]), "flops": np.array([2 * size**3]), "executed_flops": np.array([2 * size**3]),
        "bytes_read": np.array([4 * size**2]), "bytes_written": np.array([2 * size**2]), "output_bytes": np.array([2.0]),
        "groups": np.ones(1), "count": np.ones(1), "kernels": np.ones(1),
    }  # fmt: skip
    return table_from_columns([Label(name="x", layer="", part="")], 1, 1, columns)
