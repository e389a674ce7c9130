"""Whose kernels the rows of a table timed, and which release of them, where the calibration that answers knows them by name."""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels.software import Origin, facts, stated
from tilewise.hwdb.table import Ints, Kind
from tilewise.server.step.intervals import apart
from tilewise.server.validate import rules
from tilewise.server.validate.outcome import Outcome
from tilewise.server.validate.sheet import Sheet, Words

KINDS = {"gemm": Kind.GEMM, "attention": Kind.ATTENTION, "mla": Kind.ATTENTION, "moe": Kind.GROUPED_GEMM}


def codes(sheet: Sheet, gpu: Gpu) -> Ints:
    """The `library` code of every row; 0 where the table is of another kind, or the software unknown."""
    if sheet.format not in KINDS:
        return np.zeros(len(sheet), np.int64)
    origins = _origins(sheet)
    known = {one: gpu.library(KINDS[sheet.format], one) for one in set(origins)}
    return np.array([known[one] for one in origins], np.int64)


RELEASE = re.compile(r"\d+(?:\.\d+)+")


def other_release(sheet: Sheet, gpu: Gpu) -> NDArray[np.bool_]:
    """Rows whose software is stated, is none that the calibration knows by name, and is no release that it ran with, or of no release at all."""
    stack = gpu.calibration.card.get("stack", {}) if isinstance(gpu.calibration, Calibration) else {}
    ours = {release for text in stack.values() for release in RELEASE.findall(str(text))}
    column = "software" if sheet.has("software") else "backend" if sheet.format == "attention" else "impl"
    texts = sheet.text(column).tolist()
    named = [
        bool(RELEASE.search(text) if column == "backend" else text) for text in texts
    ]  # "flash" alone is no software
    differs = [
        one and bool(ours) and ours.isdisjoint(RELEASE.findall(text)) for one, text in zip(named, texts, strict=True)
    ]
    others: NDArray[np.bool_] = (sheet.named == 0) & np.array(differs, bool)
    return others


def widened(outcome: Outcome, other: NDArray[np.bool_], kind: str) -> Outcome:
    """With the intervals of times in another release wider by what releases were measured to differ by."""
    if not other.any():
        return outcome
    known = facts()["versions"]
    term = np.where(other, known.get(kind, known["others"]), 0.0)
    quantities = []
    for each in outcome.quantities:
        low, high = (
            apart(each.predicted, each.low, each.high, term, term) if each.unit == "s" else (each.low, each.high)
        )
        quantities.append(replace(each, low=low, high=high))
    words = np.where(other, "another release", "the calibration's")
    return replace(outcome, quantities=tuple(quantities), groups={**outcome.groups, "release": words})


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
