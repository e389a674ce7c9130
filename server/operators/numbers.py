"""Sizes that are ints or arrays of candidates: the few questions and formulas that must work on both, fast on ints."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = int | float | NDArray[Any]


def some(size: Number) -> bool:
    """Whether a size is positive (for any candidate): 0 stands for absent."""
    return bool((size > 0).any()) if isinstance(size, np.ndarray) else size > 0


def same(one: Number, other: Number) -> bool:
    """Whether two sizes are equal for every candidate."""
    equal = one == other
    return bool(equal.all()) if isinstance(equal, np.ndarray) else bool(equal)


def smaller(one: Number, other: Number) -> Number:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return min(one, other)


def larger(one: Number, other: Number) -> Number:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)


def choose(condition: Any, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds, else `no`."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def local(heads: Number, ranks: int) -> Number:
    """Heads of one rank; at least one, which several ranks then share."""
    return larger(heads // ranks, 1) if ranks > 1 else heads
