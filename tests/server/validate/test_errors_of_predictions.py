"""Errors and coverage are what their names say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.client.render.validation import counted
from tilewise.server.validate.outcome import Outcome, Quantity, errors, grouped, picked


def quantity(measured: list[float], predicted: list[float], half: float = 0.1) -> Quantity:
    middle = np.array(predicted)
    return Quantity("time", "s", np.array(measured), middle, middle * (1 - half), middle * (1 + half))


def outcome(one: Quantity, **groups: list[str]) -> Outcome:
    length = len(one.measured)
    blank = np.full(length, "")
    words = {name: np.array(values) for name, values in groups.items()}
    return Outcome(quantities=(one,), walls=blank, reasons=blank, refused=np.zeros(length, bool), groups=words)


def test_errors_are_relative_to_what_was_measured() -> None:
    found = errors(quantity([1, 1, 2, 4], [1.1, 0.8, 2.0, 4.2]))
    assert found is not None
    assert found.points == 4
    assert found.mean == pytest.approx((0.1 + 0.2 + 0 + 0.05) / 4)
    assert found.median == pytest.approx(0.075)
    assert found.bias == pytest.approx((0.1 - 0.2 + 0.05) / 4)
    assert found.covered == 0.75  # 1 lies outside 0.72-0.88
    assert found.width == pytest.approx(0.2)


def test_what_has_no_measurement_or_no_prediction_is_not_judged() -> None:
    nan = float("nan")
    found = errors(quantity([1, nan, 1, 0], [1, 1, nan, 1]))
    assert found is not None and found.points == 1
    assert errors(quantity([nan], [1])) is None


def test_a_quantity_without_intervals_claims_no_coverage() -> None:
    found = errors(quantity([1, 2], [1, 2], half=0))
    assert found is not None and found.covered is None and found.width is None


def test_groups_are_those_that_tell_rows_apart_in_a_readers_order() -> None:
    one = outcome(quantity([5e-6, 5e-5, 2.0], [5e-6, 5e-5, 2.0]), alignment=["16", "64+", "2"], operator=["gemm"] * 3)
    found = grouped(one, one.quantities[0])
    assert list(found) == ["alignment", "time"]
    assert list(found["alignment"]) == ["2", "16", "64+"]
    assert list(found["time"]) == ["below 10 us", "30-100 us", "above 100 ms"]


def test_rows_are_picked_by_several_words_at_once() -> None:
    one = outcome(quantity([1, 1, 1], [1, 1, 1]), precision=["bf16", "fp8", "fp8_row"], layout=["fwd", "fwd", "wgrad"])
    assert picked(one, {"precision": ("fp8", "fp8_row"), "layout": ("fwd",)}).tolist() == [False, True, False]


@given(st.lists(st.tuples(st.floats(1e-7, 1e3), st.floats(1e-7, 1e3)), min_size=1, max_size=30))
def test_groups_add_up_to_the_whole(pairs: list[tuple[float, float]]) -> None:
    measured, predicted = (list(side) for side in zip(*pairs, strict=True))
    one = outcome(quantity(measured, predicted), kind=[str(i % 3) for i in range(len(pairs))])
    overall = errors(one.quantities[0])
    assert overall is not None
    for some in grouped(one, one.quantities[0]).values():
        assert sum(error.points for error in some.values()) == overall.points == counted(one)["judged"]
        assert sum(error.points * error.mean for error in some.values()) == pytest.approx(overall.points * overall.mean)
