"""The interval of a sum lies between errors that know nothing of each other and errors that are one; that of a ratio mirrors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.server.step.intervals import half_width, independent, programmed

HALVES = st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=20)
INTERVALS = st.tuples(st.floats(1e-6, 1.0), st.floats(1.0, 3.0), st.floats(1.0, 3.0)).map(
    lambda each: (each[0], each[0] * each[1], each[0] * each[1] * each[2])
)


@given(HALVES)
def test_a_sum_is_known_better_than_its_rows_together_and_worse_than_if_they_shared_nothing(
    halves: list[float],
) -> None:
    rows = np.array(halves)
    (width,) = half_width(np.zeros(len(rows), int), 1, rows)
    assert np.sqrt((rows**2).sum()) * (1 - 1e-9) <= width <= rows.sum() * (1 + 1e-9)


@given(HALVES, st.integers(1, 100))
def test_repeats_of_a_row_err_together(halves: list[float], repeats: int) -> None:
    rows, group = np.array(halves), np.arange(len(halves))
    assert half_width(group, len(rows), repeats * rows) == pytest.approx(repeats * rows)


@given(HALVES)
def test_groups_are_summed_each_by_itself(halves: list[float]) -> None:
    rows = np.array([*halves, 2.0, 3.0])
    group = np.array([0] * len(halves) + [1, 1])
    assert half_width(group, 2, rows).tolist() == [
        half_width(group[where], 2, rows[where])[at] for at, where in enumerate((group == 0, group == 1))
    ]


@given(INTERVALS, INTERVALS)
def test_a_ratio_of_what_shares_nothing_holds_its_value_and_mirrors(
    base: tuple[float, float, float], head: tuple[float, float, float]
) -> None:
    low, ratio, high = independent(base, head)
    assert head[0] / base[2] <= low * (1 + 1e-9) and low <= ratio <= high <= head[2] / base[0] * (1 + 1e-9)
    assert independent(head, base) == pytest.approx((1 / high, 1 / ratio, 1 / low), rel=1e-9)


@given(INTERVALS, st.floats(0.05, 1.0), st.floats(1.0, 20.0))
def test_what_a_program_may_lie_off_by_widens_as_an_error_of_its_own(
    interval: tuple[float, float, float], least: float, most: float
) -> None:
    low, value, high = interval
    below, above = programmed(np.array([value]), (np.array([value - low]), np.array([high - value])), (least, most))
    factors = (value - below[0]) / value, (value + above[0]) / value
    assert 0 < factors[0] <= min(least, low / value) * (1 + 1e-9) and factors[1] >= max(most, high / value) * (1 - 1e-9)
    assert factors[0] >= least * low / value * (1 - 1e-9) and factors[1] <= most * high / value * (1 + 1e-9)
