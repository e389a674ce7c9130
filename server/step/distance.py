"""Which operators lie so far from every measurement of their kernel that nothing tested how far they may be off."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.kernels.learning.extrapolation import facts
from tilewise.hwdb.table import OperatorTable
from tilewise.hwdb.times import Times
from tilewise.server.operators.numbers import Notes


def notes(table: OperatorTable, times: Times) -> list[Notes]:
    """A line for each shape with such operators: how many octaves (doublings of a size), of which."""
    found: list[dict[str, float]] = [{} for _ in range(table.shapes)]
    reach = float(facts()["reach"])
    rows = np.flatnonzero((times.distance > reach) & (table.count > 0))
    for shape, code, octaves in zip(
        *(each[rows].tolist() for each in (table.shape, table.label, times.distance)), strict=True
    ):
        names = found[shape]
        names[table.labels[code].name] = max(octaves, names.get(table.labels[code].name, 0.0))
    return [{_line(names, reach): None} if names else {} for names in found]


def _line(names: dict[str, float], reach: float) -> str:
    far = ", ".join(f"{name} {octaves:.1f}" for name, octaves in sorted(names.items(), key=lambda each: -each[1]))
    return (
        f"octaves beyond the nearest measurement of its kernel: {far}; past {reach:g} intervals are wide and untested"
    )
