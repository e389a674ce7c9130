"""The 90 % interval of a sum of predicted times: of a step, of a layer, of an operator's rows, of a measured call.

An operator's repeats run the same kernel on the same sizes, so their errors are one error: a row counts with all its
repeats. Different rows share a part of the variance (the card, its clock, the calibration that answers for all of them);
the rest is each row's own. With H_i the half-width of row i, repeats counted in full, that of the sum is

    sqrt(shared (sum H_i)^2 + (1 - shared) sum H_i^2)

What is not known of the program that launches them is a third, independent part (server/operators/programs.py), and so is another
release of its libraries than was measured (server/validate/software.py): both lengthen or shorten a time by a factor, so their half-widths are of logs.

intervals.toml holds `shared` and how it was measured, and by how much a serving engine's steps are less sure. The interval of a ratio
of two steps that one calibration answers is that of server/step/ratio.py; of two that have no measurement in common, `independent`.
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from tilewise.hwdb.table import Floats, Ints
from tilewise.hwdb.times import Times

Bounds = tuple[float, float, float]  # (low, value, high)
Halves = tuple[Floats, Floats]  # (below, above)


def bounds(group: Ints, size: int, count: Floats, times: Times) -> Halves:
    """(below, above): half-widths of the sums of `count` executions of each row, by group; shape (size,)."""
    below = half_width(group, size, count * (times.time_s - times.low_s))
    return below, half_width(group, size, count * (times.high_s - times.time_s))


def half_width(group: Ints, size: int, half: Floats, shared: float | None = None) -> Floats:
    """Half-width of the sum of rows by group; half: that of each row with all its repeats. `shared`: unset, as measured."""
    part = _facts()["shared"] if shared is None else shared
    together, squares = np.bincount(group, half, size), np.bincount(group, half**2, size)
    width: Floats = np.sqrt(part * together**2 + (1 - part) * squares)
    return width


def programmed(value: Floats, half: Halves, factors: tuple[float, float]) -> Halves:
    """Half-widths of a sum whose program may take `factors` times as long: an error that owes nothing to its kernels' own."""
    if factors == (1.0, 1.0):
        return half
    low, high = apart(value, value - half[0], value + half[1], -math.log(factors[0]), math.log(factors[1]))
    return value - low, high - value


def independent(base: Bounds, head: Bounds) -> Bounds:
    """(low, ratio, high) of head over base where nothing was measured for both: another GPU, or another calibration of it."""
    ratio = head[1] / base[1]
    below, above = (math.hypot(math.log(head[1] / head[at]), math.log(base[1] / base[2 - at])) for at in (0, 2))
    return ratio * math.exp(-below), ratio, ratio * math.exp(above)


def served(time_s: Floats, low_s: Floats, high_s: Floats) -> tuple[Floats, Floats]:
    """(low, high) of an engine's steps, whose kernels alone make the interval given: wider by what serving differs by from them."""
    terms = _facts()["engine"]
    return apart(time_s, low_s, high_s, terms["below"], terms["above"])


def apart(
    time_s: Floats, low_s: Floats, high_s: Floats, below: Floats | float, above: Floats | float
) -> tuple[Floats, Floats]:
    """(low, high) with further log half-widths, which add to those given as independent errors do."""
    low, high = np.hypot(np.log(time_s / low_s), below), np.hypot(np.log(high_s / time_s), above)
    return time_s * np.exp(-low), time_s * np.exp(high)


@cache
def _facts() -> dict[str, Any]:
    """intervals.toml."""
    return tomllib.loads((files("tilewise.server.step") / "intervals.toml").read_text(encoding="utf-8"))
