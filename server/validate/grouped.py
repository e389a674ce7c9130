"""Tables of grouped GEMMs (one an expert in one kernel) and of fused mixture-of-experts layers made of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tilewise.hwdb.kernels.grouped_gemm import published
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import Floats, Ints, Kind, Layout
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.experts import distinct_experts
from tilewise.server.operators.sequences import GATED_FUSED
from tilewise.server.validate import rules, software
from tilewise.server.validate.asked import Asked, Part, emitted, sizes
from tilewise.server.validate.sheet import Sheet, Words

WIDTH = 2  # bytes of an activation
WIDTHS = (2.0, 2.0, 2.0)


def ask_experts(sheet: Sheet, found: list[str]) -> Asked:
    """[experts] has as many rows for every expert, all of them hit."""
    rows = rules.usable(found)
    experts, each, n, k = (sheet.number(name) for name in ("experts", "tokens_per_expert", "n", "k"))
    parts = _grouped(rows, np.zeros(len(sheet), np.int64), (experts * each, n, k, experts))
    return _asked(sheet, found, parts, "grouped_gemm", np.full(len(sheet), "bf16"), _rows(each))


def ask_points(sheet: Sheet, found: list[str]) -> Asked:
    """[grouped_gemm]: a calibration's own points, m rows over all experts; a weight gradient sums over them."""
    rows = rules.usable(found)
    m, n, k, hit = (sheet.number(name) for name in ("m", "n", "k", "hit"))
    layout = sheet.words("kind", "layout", "0").astype(np.int64)
    forward, weight = layout == Layout.FORWARD, layout == Layout.WEIGHT_GRADIENT
    sides = (
        np.where(weight, n, m),
        np.where(forward, n, k),
        np.where(weight, m, np.where(forward, k, n)),
        np.where(weight, sheet.number("groups"), hit),
    )
    parts = _grouped(rows, layout, sides)
    return _asked(sheet, found, parts, "grouped_gemm", np.full(len(sheet), "bf16"), sheet.text("kind"))


def _grouped(rows: Ints, layout: Ints, sides: tuple[Floats, Floats, Floats, Floats]) -> list[Part]:
    """bf16 products y[m,n] with sides (m, n, k, groups), one part a layout."""

    def emit(code: int, some: Ints, e: Emitter) -> None:
        m, n, k, groups = (sizes(side[some]) for side in sides)
        e.grouped_gemm("grouped_gemm", m, n, k, groups, precision=Precision.BF16, widths=WIDTHS, layout=Layout(code))

    parts = []
    for code in sorted(set(layout[rows].tolist())):
        some = rows[layout[rows] == code]
        parts.append(emitted(some, partial(emit, code, some)))
    return parts


def ask_layers(sheet: Sheet, found: list[str]) -> Asked:
    """[moe]: gate and up, activation, down over the tokens that one rank's experts get; routing beside them is left out.

    Tokens choose experts evenly: how uneven a power law is no table says.
    """
    names = sheet.words("dtype", "precision")
    codes = software.precisions(sheet, names)
    for name in sorted(set(names[codes < 0].tolist())):
        rules.explain(found, (names == name) & (codes < 0), f"number format {name} is not modelled")
    fused = rules.usable(found)[sheet.named[rules.usable(found)] > 0]
    rows = np.setdiff1d(rules.usable(found), fused)
    plain = np.char.find(sheet.text("impl"), "nongated") >= 0
    parts = []
    for bare in sorted(set(plain[rows].tolist())):
        some = rows[plain[rows] == bare]
        parts.append(emitted(some, partial(_layer, sheet, some, codes[some], bare)))
    if len(fused):
        parts.append(emitted(fused, partial(_fused, sheet, fused, codes[fused])))
    return _asked(sheet, found, parts, "moe layer", names, sheet.text("distribution"))


def _layer(sheet: Sheet, rows: Ints, codes: Ints, bare: bool, e: Emitter) -> None:
    tokens, hidden, top_k, experts = (
        sheet.number(name)[rows] for name in ("num_tokens", "hidden", "topk", "num_experts")
    )
    ranks = sheet.number("moe_ep", 1)[rows]
    width = sheet.number("moe_inter")[rows] / sheet.number("moe_tp", 1)[rows]
    hit = distinct_experts(experts, top_k, tokens) / ranks
    routed = tokens * top_k / ranks
    element = np.array([FORMATS[precision].bytes for precision in Precision])[codes]
    shape: dict[str, Any] = {"precision": sizes(codes), "widths": (sizes(element), sizes(element), WIDTH)}
    up = width if bare else 2 * width
    e.grouped_gemm("up", sizes(routed), sizes(up), sizes(hidden), sizes(hit), **shape)
    e.launches("activation", GATED_FUSED.forward, sizes(routed), sizes(width), WIDTH)
    e.grouped_gemm("down", sizes(routed), sizes(hidden), sizes(width), sizes(hit), **shape)


def _fused(sheet: Sheet, rows: Ints, codes: Ints, e: Emitter) -> None:
    """The layer as one row, where the calibration knows the engine whose kernel it is."""
    distribution = sheet.text("distribution")[rows].tolist()
    columns = published.fused(lambda name, empty: sheet.number(name, empty)[rows], distribution)
    columns |= {"library": sheet.named[rows], "precision": codes}
    flops = 6.0 * columns["m"] * columns["n"] * columns["k"]
    e.add("experts", "forward", Kind.GROUPED_GEMM, flops=sizes(flops), executed_flops=sizes(flops), bytes_read=sizes(flops * 0),
          bytes_written=sizes(flops * 0), **{name: sizes(column) for name, column in columns.items()})  # fmt: skip


def _asked(sheet: Sheet, found: list[str], parts: list[Part], operator: str, precision: Words, kind: Words) -> Asked:
    operators, impl = np.full(len(sheet), operator), sheet.text("impl")
    groups = {"operator": operators, "precision": precision, "kind": kind, "software": impl}
    return Asked.of(sheet, found, parts, groups)


def _rows(each: Floats) -> Words:
    """Rows an expert gets, as a group."""
    return np.array([f"{value:g} rows an expert" for value in each.tolist()])
