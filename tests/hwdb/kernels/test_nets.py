"""Small nets: alike ones are evaluated as one, and a row's answer depends on no other row."""

from itertools import pairwise

import numpy as np

from tilewise.hwdb.kernels.learning.mlp import Matrix, Mlp, evaluated, together

DRAW = np.random.default_rng(0)


def _net(*widths: int) -> Mlp:
    sizes = list(pairwise(widths))
    return Mlp(
        _draw(widths[0]), np.abs(_draw(widths[0])) + 0.1, tuple(_draw(*size) for size in sizes), tuple(_draw(out) for _, out in sizes)
    )  # fmt: skip


def _draw(*size: int) -> Matrix:
    return np.asarray(DRAW.normal(size=size), np.float32)


def test_nets_that_are_evaluated_together_answer_as_each_does_alone_to_the_bit() -> None:
    nets, features = [_net(20, 32, 16, 2) for _ in range(4)], _draw(2500, 20)
    found = evaluated(together(nets), features)
    assert all((each == net(features)).all() for each, net in zip(found, nets, strict=True))


def test_a_row_has_the_same_bits_whatever_rows_it_is_among() -> None:
    nets, features = [_net(20, 32, 16, 2) for _ in range(3)], _draw(1500, 20)
    whole = evaluated(together(nets), features)
    for first, last in ((0, 1), (3, 10), (1023, 1026)):
        assert (evaluated(together(nets), features[first:last]) == whole[:, first:last]).all()
