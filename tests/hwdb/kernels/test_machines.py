"""A calibration of one card is less sure of the next one; one of several cards knows from its own points."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewise.hwdb.kernels import launch, machines

TIMES_S = np.array([1e-5, 5e-4, 5e-3])


def card(*others: tuple[int, str]) -> Any:
    runs = [{"ranks": ranks, "gpu": {"serial": serial}} for ranks, serial in others]
    return SimpleNamespace(card={"gpu": {"serial": "a"}, "others": runs})


def test_longer_products_differ_more_from_card_to_card() -> None:
    differ = machines.between_cards(card(), "gemm", TIMES_S)
    assert (np.diff(differ) > 0).all() and differ[0] > 0 and differ[-1] < 0.05


def test_a_second_card_makes_the_points_themselves_say_it() -> None:
    assert not machines.between_cards(card((1, "b")), "gemm", TIMES_S).any()
    assert machines.between_hosts(card((1, "b"))) == 0


@pytest.mark.parametrize("others", [((1, "a"),), ((2, "b"),), ((2, "a"), (1, "a"))])
def test_a_run_of_the_same_card_or_of_collectives_alone_is_no_second_card(others: tuple[tuple[int, str], ...]) -> None:
    assert machines.between_cards(card(*others), "attention", TIMES_S).all()
    assert machines.between_hosts(card(*others)) > 0


def test_ends_move_out_as_independent_errors_add() -> None:
    assert launch.wider([1.0, 2.0, 4.0], 0.0) == pytest.approx([1.0, 2.0, 4.0])
    low, value, high = launch.wider([1.0, 2.0, 4.0], 0.3)
    assert low < 1.0 and value == 2.0 and 4.0 < high < 4.0 * np.exp(0.3)
