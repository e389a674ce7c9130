"""Comparing two calibrations: same, faster, slower, or cannot tell."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.compare import Verdict, compare, judge, median_interval

Make = Callable[..., Calibration]


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({}, Verdict.SAME),
        ({"scale": 1.004}, Verdict.SAME),
        ({"scale": 1.05}, Verdict.SLOWER),
        ({"scale": 0.95}, Verdict.FASTER),
        ({"scale": 1.05, "spread": 0.3}, Verdict.UNKNOWN),
        ({"scale": 1.98 / 1.75, "clock": 1750.0}, Verdict.UNKNOWN),  # as many cycles: the clock, not the kernel
    ],
)
def test_every_point_gets_its_verdict(make: Make, settings: dict[str, float], verdict: Verdict) -> None:
    (gemm,) = compare(make("old"), make("new", **settings))
    assert gemm.counts == {verdict.value: gemm.points}


def test_a_family_is_judged_by_its_median_and_counts_other_kernels(make: Make) -> None:
    (gemm,) = compare(make("old"), make("new", scale=1.05, kernel="another"))
    assert gemm.verdict is Verdict.SLOWER
    assert gemm.low <= gemm.ratio <= gemm.high
    assert gemm.ratio == pytest.approx(1.05, rel=1e-3)
    assert gemm.kernels_changed == gemm.points


@given(st.floats(1e-6, 1e-2), st.floats(0.003, 0.3), st.floats(1e-6, 1e-2), st.floats(0.003, 0.3))
def test_swapping_old_and_new_swaps_the_verdict(a: float, a_half: float, b: float, b_half: float) -> None:
    swapped = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    one, other = judge(a, a_half, b, b_half), judge(b, b_half, a, a_half)
    near = abs(abs(b / a - 1) - 0.01) < 2e-4  # at the very edge the ratio's direction decides
    assert near or other is swapped.get(one, one)


def test_the_interval_of_a_median_covers_it_nine_times_in_ten() -> None:
    draw = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        _, low, high = median_interval(draw.lognormal(0.0, 0.02, 60))
        inside += low <= 1.0 <= high
    assert inside >= 0.88 * 400
