"""Whose kernels the rows of a table timed, where the calibration that answers knows them by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels.published import latent
from tilewise.hwdb.kernels.published.software import label, laid_out, multiplies
from tilewise.hwdb.table import Ints, Kind, OperatorTable
from tilewise.server.validate import rules
from tilewise.server.validate.sheet import Sheet, Words

KINDS = {"gemm": Kind.GEMM, "attention": Kind.ATTENTION, "mla": Kind.ATTENTION, "moe": Kind.GROUPED_GEMM}


def codes(sheet: Sheet, gpu: Gpu) -> Ints:
    """The `library` code of every row; 0 where the table is of another kind, or the software unknown."""
    if sheet.format not in KINDS:
        return np.zeros(len(sheet), np.int64)
    labels = _labels(sheet)
    known = {name: gpu.library(KINDS[sheet.format], name) for name in set(labels.tolist())}
    return np.array([known[name] for name in labels.tolist()], np.int64)


def _labels(sheet: Sheet) -> Words:
    formats = sheet.words("dtype", "precision")
    if sheet.format not in ("attention", "mla"):
        software = sheet.text("software" if sheet.format == "gemm" else "impl")
        rows = zip(software.tolist(), sheet.text("source_path").tolist(), formats.tolist(), strict=True)
        return np.array([label(laid_out(name, path), word) for name, path, word in rows])
    words = (
        sheet.text("backend" if sheet.format == "attention" else "impl"),
        formats,
        sheet.words("kv_dtype", "precision"),
    )
    labels = np.array([label(*row) for row in zip(*(column.tolist() for column in words), strict=True)])
    phase = np.char.add(latent.NAME if sheet.format == "mla" else "", sheet.words("phase", "phase"))
    return np.char.add(np.char.add(phase, " "), labels)


def precisions(sheet: Sheet, names: Words) -> Ints:
    """Codes of the number formats; of one that is no Precision, but whose software is known, that of its products."""
    found = rules.precisions(names)
    odd = (found < 0) & (sheet.named > 0)
    found[odd] = [int(multiplies(f", {name}")) for name in names[odd].tolist()]
    return found


def asked_by_name(table: OperatorTable, owner: Ints, sheet: Sheet) -> OperatorTable:
    """The table with every row's software."""
    return replace(table, library=sheet.named[owner])
