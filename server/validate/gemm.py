"""Tables of matrix products: y[m,n] = x w, forward or one of the two gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import Floats, Ints
from tilewise.server.operators.emitter import Emitter
from tilewise.server.validate import rules, software
from tilewise.server.validate.asked import Asked, Part, emitted, sizes
from tilewise.server.validate.sheet import Sheet, Words, facts

ALIGNED = 8  # N and K a multiple of so many elements: 16 bytes of a 16-bit format
WIDEST = 64
NARROWEST_OUTPUT = 2.0  # bytes: products of 8-bit inputs are written in 16 bit
BYTES = np.array([FORMATS[precision].bytes for precision in Precision])


def ask(sheet: Sheet, found: list[str]) -> Asked:
    """The products of a table; `found` are reasons against its rows, completed here."""
    names = sheet.words("dtype", "precision")
    codes = software.precisions(sheet, names)
    for name in sorted(set(names[codes < 0].tolist())):
        rules.explain(found, (names == name) & (codes < 0), f"number format {name} is not modelled")
    rows = rules.usable(found)
    groups = {
        "operator": np.full(len(sheet), "gemm"),
        "precision": names,
        "layout": sheet.text("kind", "fwd"),
        "aligned": np.where(_power(sheet) >= ALIGNED, "N, K multiples of 8", "not"),
        "alignment": _alignment(sheet),
        "software": sheet.text("software"),
    }
    return Asked.of(sheet, found, _parts(sheet, rows, codes), groups, derived_s=_from_rate(sheet), named=True)


def _parts(sheet: Sheet, rows: Ints, codes: Ints) -> list[Part]:
    if not len(rows):
        return []
    m, n, k = (sheet.number(name)[rows] for name in ("m", "n", "k"))
    groups, layout = sheet.number("groups", 1)[rows], sheet.words("kind", "layout", "0").astype(np.int64)[rows]
    element = BYTES[codes[rows]]
    options: dict[str, Any] = {
        "precision": sizes(codes[rows]),
        "layout": sizes(layout),
        "groups": sizes(groups),
        "widths": (sizes(element), sizes(element), sizes(np.maximum(element, NARROWEST_OUTPUT))),
    }
    parts = [emitted(rows, lambda e: e.gemm("gemm", sizes(m), sizes(n), sizes(k), **options))]
    flags = facts()["flags"]["quantized"]
    quantized = np.array([any(mark in note for mark in flags) for note in sheet.text("notes")[rows].tolist()], bool)
    quantized &= sheet.named[rows] == 0  # what is known by name is known with its cast
    if quantized.any():
        parts.append(emitted(rows[quantized], lambda e: _quantize(e, m[quantized], k[quantized])))
    return parts


def _from_rate(sheet: Sheet) -> Floats:
    """Seconds by the TFLOPS that a row tells."""
    flops = 2 * sheet.number("m") * sheet.number("n") * sheet.number("k") * sheet.number("groups", 1)
    rate = sheet.number("tflops")
    seconds: Floats = flops / (1e12 * np.where(rate > 0, rate, np.nan))
    return seconds


def _quantize(e: Emitter, m: Floats, k: Floats) -> None:
    """The cast of 16-bit activations to 8 bit, where a time includes it."""
    e.memory("quantize", "quantize", sizes(m), sizes(k), sizes(2 * m * k), sizes(m * k))


def _power(sheet: Sheet) -> Ints:
    """The largest power of two that divides N and K, at most WIDEST."""
    both = np.nan_to_num(sheet.number("n")).astype(np.int64) | np.nan_to_num(sheet.number("k")).astype(np.int64)
    lowest: Ints = np.minimum(both & -both, WIDEST)
    return lowest


def _alignment(sheet: Sheet) -> Words:
    """Alignment class by that power."""
    return np.array([f"{p}+" if p == WIDEST else str(p) for p in _power(sheet).tolist()])
