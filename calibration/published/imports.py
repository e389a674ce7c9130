"""`calibrate import`: whose rows, of which GPU, into which folder."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

from tilewise.calibration.published import aiconfigurator
from tilewise.calibration.published import rows as row
from tilewise.calibration.published.build import Builder
from tilewise.calibration.published.rows import Rows
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput


def build(source: str, tables: Sequence[Path], sku: str, into: Path, date: str = "") -> Calibration:
    """The published calibration of a SKU in `into`/<sku>. GPUs of one generation share a fit, so several cost like one.

    Raises InvalidInput (BAD_DATE, BAD_TABLE), NotFound (UNKNOWN_GPU), NotAvailable (NOT_PUBLISHED,
    PACKAGE_MISSING).
    """
    if date and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        raise InvalidInput(f"{date!r} is no date; write 2026-11-28", reason="BAD_DATE", field="date")
    if (source == "csv") != bool(tables):
        wanted = "needs tables: name the CSV files" if source == "csv" else "reads its package: name no tables"
        raise InvalidInput(f"--from {source} {wanted}", reason="BAD_TABLE", field="tables")
    name = Database.packaged().resolve(sku).sku
    print(f"{name}: reading, then fitting; minutes", file=sys.stderr)
    builder = _builder(source, tuple(tables), date or datetime.datetime.now(datetime.UTC).date().isoformat())
    return builder.build(name, into / name)


@lru_cache(maxsize=1)
def _builder(source: str, tables: tuple[Path, ...], date: str) -> Builder:
    return Builder(aiconfigurator.load if source == "aiconfigurator" else partial(_read, tables), date)


def _read(tables: Sequence[Path], sku: str) -> list[Rows]:
    found = [row.read(table, sku) for table in tables]
    return [rows for rows in found if rows is not None]
