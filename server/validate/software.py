"""Whose kernels the rows of a table timed, where the calibration that answers knows them by name."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels.software import Origin, stated
from tilewise.hwdb.table import Ints, Kind
from tilewise.server.validate import rules
from tilewise.server.validate.sheet import Sheet, Words

KINDS = {"gemm": Kind.GEMM, "attention": Kind.ATTENTION, "mla": Kind.ATTENTION, "moe": Kind.GROUPED_GEMM}


def codes(sheet: Sheet, gpu: Gpu) -> Ints:
    """The `library` code of every row; 0 where the table is of another kind, or the software unknown."""
    if sheet.format not in KINDS:
        return np.zeros(len(sheet), np.int64)
    origins = _origins(sheet)
    known = {one: gpu.library(KINDS[sheet.format], one) for one in set(origins)}
    return np.array([known[one] for one in origins], np.int64)


def _origins(sheet: Sheet) -> list[Origin]:
    """Whose kernels each row of the table timed."""
    formats = sheet.words("dtype", "precision").tolist()
    if sheet.format not in ("attention", "mla"):
        software = sheet.text("software" if sheet.format == "gemm" else "impl")
        rows = zip(software.tolist(), formats, sheet.text("source_path").tolist(), strict=True)
        return [stated(text, word, path=path) for text, word, path in rows]
    software = sheet.text("backend" if sheet.format == "attention" else "impl")
    caches, phases = (sheet.words(name, of).tolist() for name, of in (("kv_dtype", "precision"), ("phase", "phase")))
    cached = zip(software.tolist(), formats, caches, phases, strict=True)
    return [stated(text, *words, phase=phase, latent=sheet.format == "mla") for text, *words, phase in cached]


def precisions(sheet: Sheet, names: Words) -> Ints:
    """Codes of the number formats; of one that is no Precision, but whose software is known, that of its products."""
    found = rules.precisions(names)
    odd = (found < 0) & (sheet.named > 0)
    found[odd] = [int(Origin(engine="", formats=(name,)).multiplies) for name in names[odd].tolist()]
    return found
