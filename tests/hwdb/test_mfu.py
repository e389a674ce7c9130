"""A measured rate becomes a utilisation with a named peak (user cases G01, G02, G06 to G09, G11, G59)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.mfu import DENSE, rate, utilisation
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Peak

DATABASE = Database.packaged()


def peak(gpu: str, precision: Precision = Precision.BF16) -> Peak:
    return DATABASE.gpu(gpu).peak(precision)


def test_g01_480_tflops_on_h100_sxm_are_48_5_percent_of_989_dense() -> None:
    found = utilisation(480e12, peak("h100-sxm"))
    assert found.mfu == pytest.approx(0.485, abs=0.0005)
    assert str(found) == "48.5% MFU: 480.0 of 989.4 TFLOPS dense bf16 of h100-sxm5-80gb at 1830 MHz"


def test_g01_tokens_per_second_give_the_same_rate() -> None:
    assert rate(9600, 0.05e12) == pytest.approx(480e12)
    assert rate(9600 * 8, 0.05e12, gpus=8) == pytest.approx(480e12)


def test_g02_420_tflops_on_h200_are_42_45_percent() -> None:
    assert 0.424 < utilisation(420e12, peak("h200")).mfu < 0.425
    assert peak("h200").flops_per_s == peak("h100-sxm").flops_per_s


@pytest.mark.parametrize(
    ("rate_tflops", "gpu"), [(1.04 * 312, "a100-sxm-80gb"), (322, "a100-sxm-80gb"), (2700, "b300")]
)
def test_g06_over_100_percent_is_an_error_never_a_number(rate_tflops: float, gpu: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        utilisation(rate_tflops * 1e12, peak(gpu))
    assert caught.value.reason == "OVER_PEAK"
    assert "peak or FLOP count is wrong" in caught.value.message


@pytest.mark.parametrize(("rate_tflops", "mfu"), [(275.6, 0.1225), (329.8, 0.1466)])
def test_g07_b300_is_divided_by_its_own_peak(rate_tflops: float, mfu: float) -> None:
    assert utilisation(rate_tflops * 1e12, peak("NVIDIA B300 SXM6 AC")).mfu == pytest.approx(mfu, abs=0.0001)


@pytest.mark.parametrize("gpu", DATABASE.skus())
def test_g08_every_peak_names_kind_source_and_clock(gpu: str) -> None:
    found = peak(gpu)
    assert found.kind == "dense"
    assert found.source
    assert found.mark
    assert 1e9 < found.clock_hz <= found.clock_max_hz < 3e9


def test_g09_the_peak_of_h800_is_the_dense_one() -> None:
    assert peak("h800-sxm").tflops == pytest.approx(990, abs=1)
    assert "sparse" in DENSE


def test_g59_a_rate_above_the_peak_names_the_clock_that_would_explain_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        utilisation(1020e12, peak("h100-sxm"))
    assert "would need 1887 MHz" in caught.value.message
    assert "the boost clock of 1980 MHz could explain it" in caught.value.message


def test_g59_a_rate_that_no_clock_explains_blames_the_count_or_the_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        utilisation(1978.9e12, peak("h100-sxm"))
    assert "the GPU runs 1980 MHz at most, so the FLOP count or the GPU's name is wrong" in caught.value.message


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_no_positive_number_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidInput, match="not a positive number"):
        utilisation(wrong, peak("mi300x"))


@given(st.floats(1e-6, 1.0), st.sampled_from(DATABASE.skus()))
def test_utilisation_times_peak_is_the_rate(share: float, gpu: str) -> None:
    dense = peak(gpu)
    assert utilisation(share * dense.flops_per_s, dense).mfu == pytest.approx(share)
