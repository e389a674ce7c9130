"""No answer lies outside of what physics allows, whatever is asked: random operators of every kind on every GPU."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewise
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels import limits
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Times, Trust

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "stress"))
from search_physics import ROUNDING, asked, shares

DATABASE = Database.packaged()
CALIBRATED = [(sku, id) for sku in DATABASE.skus() for id in DATABASE.calibrations(sku) or ("",)]
NARROW = 2.0  # of what was measured the usual interval
WIDEST = 1000  # times: the slowest top-k takes 46 times what its bytes take, and of what was never measured nobody knows better


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CALIBRATED), st.integers(0, 2**32), st.sampled_from(State))
def test_no_operator_beats_the_dense_peak_or_the_datasheet_bandwidth_nor_does_its_interval(
    gpu: tuple[str, str], seed: int, state: State
) -> None:
    found = DATABASE.gpu(*gpu)
    table = asked(found.sku, seed)
    times = found.predict(table, state)
    answered = ~times.refused
    assert (times.low_s <= times.time_s)[answered].all() and (times.time_s <= times.high_s)[answered].all()
    assert (shares(table, times, found.sku)[:, answered] <= 1 + ROUNDING).all()


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(CALIBRATED), st.integers(0, 2**32))
def test_no_interval_is_meaningless(gpu: tuple[str, str], seed: int) -> None:
    found = DATABASE.gpu(*gpu)
    table = asked(found.sku, seed)
    times = found.predict(table)
    rows = ~times.refused & (table.kind != Kind.COLLECTIVE)
    assert (times.high_s <= WIDEST * times.low_s)[rows].all()
    near = rows & (times.distance <= 1) & (times.trust == Trust.MEASURED)
    if near.any():
        assert np.median((times.high_s / times.low_s)[near]) < NARROW


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(CALIBRATED), st.integers(0, 2**32))
def test_a_time_held_by_physics_keeps_an_interval(gpu: tuple[str, str], seed: int) -> None:
    """Where a model's own value was impossible, both bounds were the limit that it was held to."""
    found = DATABASE.gpu(*gpu)
    table = asked(found.sku, seed)
    times = found.predict(table)
    rows = ~times.refused & (table.kind != Kind.COLLECTIVE)
    assert (times.high_s > times.low_s)[rows].all()


@pytest.mark.parametrize("sku", ["h100-sxm5-80gb", "h200-sxm-141gb"])
def test_what_was_measured_lies_within_the_limits(sku: str) -> None:
    """All but two products that take three times as long as the next."""
    database = Database(ROOT / "hwdb")  # an installed package has no measurements
    calibration, outside = database.calibration(sku, str(database.active(sku))), 0
    for family in ("gemm", "grouped_gemm", "attention", "memory"):
        module = import_module(f"tilewise.hwdb.kernels.{family}.fitted")
        measured = {name: burst(calibration, name) for name in module.MEASURED if name in calibration.families()}
        table, took_s = module.table(measured), module.measured_s(measured)
        assert (limits.least_s(table, database.sku(sku)) <= took_s).all(), family
        outside += int((took_s > limits.most_s(table, database.sku(sku))).sum())
    assert outside <= 1


def burst(calibration: Calibration, family: str) -> dict[str, Any]:
    columns = calibration.measurements(family)
    rows = columns["state"] == "burst"
    return {name: values[rows] for name, values in columns.items()}


@pytest.mark.parametrize("gpu", CALIBRATED)
def test_nothing_is_refused_that_physics_bounds(gpu: tuple[str, str]) -> None:
    """What torch does not take stays refused: fp8 products off multiples of 16, heads of no kernel."""
    found = DATABASE.gpu(*gpu)
    table = asked(found.sku, 5, 1000)
    times = found.predict(table)
    assert {times.refusals[at].partition(":")[0] for at in times.refusal[times.refused].tolist()} <= {"NOT_TAKEN"}


def products(k: int, n: int, precision: int) -> OperatorTable:
    m = 4096.0
    shape = {
        "m": m, "n": n, "k": k, "kind": int(Kind.GEMM), "precision": precision, "flops": 2 * m * n * k, "output_bytes": 2.0,
        "bytes_read": k * (m + n), "bytes_written": 2.0 * m * n,
    }  # fmt: skip
    columns = {name: np.array([value]) for name, value in shape.items()}
    return table_from_columns([Label(name="x", layer="", part="")], 1, 1, columns)


def gemm_times(**shape: int) -> Times:
    return DATABASE.gpu("h100-sxm5-80gb").predict(products(**shape))


@pytest.mark.parametrize("sku", ["h20-sxm-96gb", "h800-sxm-80gb", "b300-sxm-270gb", "gb300-279gb"])
@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_a_gpu_whose_fp64_is_cut_answers_fp64_within_its_peak(sku: str, phase: str) -> None:
    """The slowest sensible kernel was one in fp32, which is 37 times as fast: refused as utilisation over 100 %."""
    asked = {"phase": phase, "sequence": 512} if phase != "decode" else {"phase": phase, "context": 512}
    found = tilewise.predict(ROOT / "examples" / "gpt2.json", gpu=sku, precision="fp64", **asked)
    assert 0.05 < found.step.hfu <= 1


@pytest.mark.parametrize(
    ("shape", "said"),
    [({"k": 4096, "n": 1000}, "n 992 or 1008"), ({"k": 4095, "n": 8200}, "n 8192 or 8208 and k 4080 or 4096")],
)
def test_an_fp8_product_that_torch_refuses_is_refused_with_the_nearest_sizes(shape: dict[str, int], said: str) -> None:
    times = gemm_times(**shape, precision=int(Precision.FP8))
    assert np.isnan(times.time_s[0]) and said in times.refusals[times.refusal[0]]
    assert gemm_times(k=4096, n=1008, precision=int(Precision.FP8)).time_s[0] > 0
    assert gemm_times(**shape, precision=int(Precision.BF16)).time_s[0] > 0


@pytest.mark.parametrize("sku", ["h100-sxm5-80gb", "h200-sxm-141gb"])
@pytest.mark.parametrize("precision", [Precision.FP8, Precision.TF32, Precision.FP32])
def test_experts_in_another_format_take_its_time_and_are_trusted_less(sku: str, precision: Precision) -> None:
    """8,192 rows over 8 experts of 4096 x 14336: compute alone."""
    gpu, (m, n, k) = DATABASE.gpu(sku), (8192.0, 14336, 4096)
    columns = {
        "kind": [int(Kind.GROUPED_GEMM)] * 2, "precision": [int(Precision.BF16), int(precision)], "m": [m] * 2, "n": [n] * 2,
        "k": [k] * 2, "groups": [8.0] * 2, "flops": [2 * m * n * k] * 2, "output_bytes": [2.0] * 2,
        "bytes_read": [2.0 * (m * k + 8 * n * k)] * 2, "bytes_written": [2.0 * m * n] * 2, "kernels": [2.0] * 2,
    }  # fmt: skip
    table = table_from_columns(
        [Label(name="x", layer="", part="")], 1, 2, {name: np.array(values) for name, values in columns.items()}
    )
    times = gpu.predict(table)
    peaks = [gpu.peak(one).flops_per_s for one in (Precision.BF16, precision)]
    assert times.time_s[1] / times.time_s[0] == pytest.approx(peaks[0] / peaks[1], rel=0.35)
    assert times.trust[1] < times.trust[0]
    assert times.high_s[1] / times.low_s[1] > times.high_s[0] / times.low_s[0]
