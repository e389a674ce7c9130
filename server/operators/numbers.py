"""Sizes that are ints or arrays of candidates: the few questions and formulas that must work on both, fast on ints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.server.architecture.sizes import agreed

Notes = dict[str, None]  # sentences about one candidate, each once, in order
Number = int | float | NDArray[Any]


def some(size: Number) -> bool:
    """Whether a size is positive: 0 stands for absent. Raises UnlikeShapes where it is for some candidates alone."""
    return agreed(size > 0)


def same(one: Number, other: Number) -> bool:
    """Whether two sizes are equal. Raises UnlikeShapes where they are for some candidates alone."""
    return agreed(one == other)


def smaller(one: Number, other: Number) -> Number:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return min(one, other)


def larger(one: Number, other: Number) -> Number:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)


def largest(sizes: Sequence[Number]) -> int | NDArray[np.int64]:
    """Which of several sizes is the largest, the first of equal ones; for every candidate."""
    if any(isinstance(size, np.ndarray) for size in sizes):
        return np.asarray(np.stack(np.broadcast_arrays(*sizes)).argmax(axis=0))
    return max(range(len(sizes)), key=sizes.__getitem__)


def pick(at: int | NDArray[np.int64], sizes: Sequence[Number]) -> Number:
    """The size that `largest` points at; for every candidate."""
    if not isinstance(at, np.ndarray):
        return sizes[at]
    found: NDArray[Any] = np.take_along_axis(np.stack(np.broadcast_arrays(*sizes, at)[:-1]), at[None], 0)[0]
    return found


def choose(condition: Any, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds, else `no`."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def local(heads: Number, ranks: int) -> Number:
    """Heads of one rank; at least one, which several ranks then share."""
    return larger(heads // ranks, 1) if ranks > 1 else heads
