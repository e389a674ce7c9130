"""What distance costs: by how much an interval widens, and from where a trust no longer holds (extrapolation.toml).

An answer beyond the measurements of its kernel is what physics makes of its size; how far that goes wrong for every octave
was measured on points that were left out of a fit (scripts/research/measure_extrapolation.py).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb import packaged
from tilewise.hwdb.kernels.learning.regression import Answer
from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.table import Floats, Ints
from tilewise.hwdb.times import Trust


def widened(answer: Answer, family: str) -> Answer:
    """`answer` with the interval that its distance asks for."""
    factor = np.exp(_added(answer.distance, family))
    return replace(answer, low_s=answer.low_s / factor, high_s=answer.high_s * factor)


def trust(distance: Floats, family: str, near: Trust) -> Ints:
    """`near` as far as the law was tested and what distance adds stays below what an assumed ceiling does; then DATASHEET."""
    surely = np.exp(_added(distance, family)) <= assumptions()["datasheet_widening"]
    near_enough = surely & (distance <= facts()["reach"])  # not where it is NaN
    return np.where(near_enough, int(near), int(Trust.DATASHEET))


def _added(distance: Floats, family: str) -> Floats:
    """To the half-width of log(time); nothing where no measurement stands behind a row."""
    octaves, law = np.fmax(distance, 0.0), facts()["family"][family]
    tested = np.minimum(octaves, facts()["reach"])
    added: Floats = law["growth"] * tested + law["beyond"] * (octaves - tested)
    return added


@cache
def facts() -> dict[str, Any]:
    return packaged.toml("tilewise.hwdb.kernels.learning", "extrapolation.toml")
