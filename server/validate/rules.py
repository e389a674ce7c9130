"""Which rows of a table are fair judges: those of this GPU, with a time, and with no flag against them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.precision import NAMES
from tilewise.hwdb.table import Floats, Ints
from tilewise.server.validate.sheet import Sheet, Words, facts


def reasons(sheet: Sheet, gpu: Gpu, database: Database) -> list[str]:
    """Why each row is skipped, whatever it asks; "" where nothing speaks against it."""
    others = {name: _other_gpu(name, gpu, database) for name in set(sheet.text("gpu").tolist())}
    flags = facts()["flags"]["skip"]
    found = []
    for name, note in zip(sheet.text("gpu").tolist(), sheet.text("notes").tolist(), strict=True):
        flag = next((why for mark, why in flags.items() if mark in note), "")
        found.append(others[name] or flag)
    return found


def _other_gpu(name: str, gpu: Gpu, database: Database) -> str:
    """Why a row of the GPU `name` is not about `gpu`; a table without such a column is."""
    if not name:
        return ""
    if gpu.sku.name in facts()["one_of"].get(name, ()):
        return ""
    try:
        same = database.resolve(name).sku == gpu.sku.name
    except TilewiseError:
        same = False
    return "" if same else f"measured on another GPU: {name}"


def times(sheet: Sheet, derived_s: Floats | None = None) -> tuple[Floats, Floats]:
    """Measured (burst, sustained) seconds; the mean of two machines; a row whose notes or state say so is sustained.

    derived_s: what follows from a rate, for rows that tell no time
    """
    first, second = sheet.number("time_us"), sheet.number("other_time_us")
    time_s = 1e-6 * np.where(np.isnan(second), first, np.where(np.isnan(first), second, (first + second) / 2))
    if derived_s is not None:
        time_s = np.where(np.isnan(time_s), derived_s, time_s)
    sustained_s = 1e-6 * sheet.number("sustained_us")
    steady = np.char.startswith(sheet.text("notes"), "SUSTAINED") | (sheet.text("state") == "sustained")
    return np.where(steady, np.nan, time_s), np.where(steady, time_s, sustained_s)


def precisions(names: Words) -> Ints:
    """Codes of Precision; -1 for a format that is not known here."""
    return np.array([int(NAMES[name]) if name in NAMES else -1 for name in names.tolist()], np.int64)


def explain(found: list[str], bad: NDArray[np.bool_], why: str) -> None:
    """Write a reason beside the rows that have none yet."""
    for row in np.flatnonzero(bad):
        found[row] = found[row] or why


def usable(found: list[str]) -> Ints:
    """Numbers of the rows that nothing speaks against."""
    return np.array([row for row, why in enumerate(found) if not why], np.int64)
