"""How many kernels an aten operator launches: rules of ATen's own CUDA sources."""

import pytest

from tilewise.server.trace.kernels import Operand, kernels


def operand(*shape: int, dtype: str = "int64") -> Operand:
    stride, strides = 1, []
    for length in reversed(shape):
        strides.insert(0, stride)
        stride *= length
    return Operand(shape, tuple(strides), dtype, 8, 0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (operand(1, 4096), 2),
        (operand(1, 4096, dtype="bool"), 3),
        (operand(8, 4096), 1),
        (operand(8, 1, dtype="int32"), 2),
    ],
)
def test_a_scan_along_one_row_is_cubs_of_two_kernels_and_types_that_differ_are_cast_first(
    given: Operand, expected: int
) -> None:
    assert kernels("cumsum", (given,), (operand(*given.shape),)) == expected


@pytest.mark.parametrize(("chosen", "expected"), [(1, 1), (8, 2)])
def test_a_choice_of_several_is_sorted(chosen: int, expected: int) -> None:
    found = operand(4096, chosen, dtype="float32")
    assert kernels("topk", (operand(4096, 64, dtype="float32"),), (found, operand(4096, chosen))) == expected


def test_a_small_sort_is_done_in_place_on_a_copy() -> None:
    keys = operand(2048)
    assert kernels("sort", (keys,), (keys, keys)) == 5
