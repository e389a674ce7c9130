"""Tables of grouped GEMMs (one an expert in one kernel) and of fused mixture-of-experts layers made of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import Floats, Ints
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.experts import distinct_experts
from tilewise.server.operators.sequences import GATED_FUSED
from tilewise.server.validate import rules
from tilewise.server.validate.asked import Asked, Part, emitted, joined, sizes
from tilewise.server.validate.sheet import Sheet, Words

WIDTH = 2  # bytes of an activation


def ask_experts(sheet: Sheet, found: list[str]) -> Asked:
    """[experts] has as many rows for every expert, all of them hit."""
    rows = rules.usable(found)
    experts, each, n, k = (sheet.number(name) for name in ("experts", "tokens_per_expert", "n", "k"))
    parts = [
        emitted(
            rows,
            lambda e: e.grouped_gemm(
                "grouped_gemm", sizes((experts * each)[rows]), sizes(n[rows]), sizes(k[rows]), sizes(experts[rows]),
                precision=Precision.BF16, widths=(2, 2, 2),
            ),
        )
    ]  # fmt: skip
    return _asked(sheet, found, parts[: len(rows)], "grouped_gemm", np.full(len(sheet), "bf16"), _rows(each))


def ask_points(sheet: Sheet, found: list[str]) -> Asked:
    """[grouped_gemm]: a calibration's own points, forward and gradients, m rows over the experts hit."""
    rows = rules.usable(found)
    m, n, k, hit = (sheet.number(name) for name in ("m", "n", "k", "hit"))
    layout = sheet.words("kind", "layout", "0").astype(np.int64)
    weight = layout == 2  # m rows in all are what a weight gradient sums over
    first, last = np.where(weight, n, m), np.where(weight, m, k)
    middle = np.where(weight, k, np.where(layout == 1, k, n))
    last = np.where(layout == 1, n, last)
    groups = np.where(weight, sheet.number("groups"), hit)
    parts = [
        emitted(rows[layout[rows] == code], lambda e, r=rows[layout[rows] == code], c=code: e.grouped_gemm(
            "grouped_gemm", sizes(first[r]), sizes(middle[r]), sizes(last[r]), sizes(groups[r]),
            precision=Precision.BF16, widths=(2, 2, 2), layout=c,
        ))
        for code in sorted(set(layout[rows].tolist()))
    ]  # fmt: skip
    return _asked(sheet, found, parts, "grouped_gemm", np.full(len(sheet), "bf16"), sheet.text("kind"))


def ask_layers(sheet: Sheet, found: list[str]) -> Asked:
    """[moe]: gate and up, activation, down over the tokens that one rank's experts get; routing beside them is left out.

    Tokens choose experts evenly: how uneven a power law is no table says.
    """
    names = sheet.words("dtype", "precision")
    codes = rules.precisions(names)
    for name in sorted(set(names[codes < 0].tolist())):
        rules.explain(found, names == name, f"number format {name} is not modelled")
    rows = rules.usable(found)
    plain = np.char.find(sheet.text("impl"), "nongated") >= 0
    parts = [
        emitted(rows[plain[rows] == bare], lambda e, r=rows[plain[rows] == bare], b=bare: _layer(e, sheet, r, codes[r], b))
        for bare in sorted(set(plain[rows].tolist()))
    ]
    return _asked(sheet, found, parts, "moe layer", names, sheet.text("distribution"))


def _layer(e: Emitter, sheet: Sheet, rows: Ints, codes: Ints, bare: bool) -> None:
    tokens, hidden, top_k, experts = (
        sheet.number(name)[rows] for name in ("num_tokens", "hidden", "topk", "num_experts")
    )
    ranks = sheet.number("moe_ep", 1)[rows]
    width = sheet.number("moe_inter")[rows] / sheet.number("moe_tp", 1)[rows]
    hit = distinct_experts(experts, top_k, tokens) / ranks
    routed = tokens * top_k / ranks
    element = np.array([FORMATS[precision].bytes for precision in Precision])[codes]
    shape = {"precision": sizes(codes), "widths": (sizes(element), sizes(element), WIDTH)}
    up = width if bare else 2 * width
    e.grouped_gemm("up", sizes(routed), sizes(up), sizes(hidden), sizes(hit), **shape)  # type: ignore[arg-type]
    e.launches("activation", GATED_FUSED.forward, sizes(routed), sizes(width), WIDTH)
    e.grouped_gemm("down", sizes(routed), sizes(hidden), sizes(width), sizes(hit), **shape)  # type: ignore[arg-type]


def _asked(sheet: Sheet, found: list[str], parts: list[Part], operator: str, precision: Words, kind: Words) -> Asked:
    table, owner = joined(parts)
    burst, sustained = rules.times(sheet)
    return Asked(
        table=table,
        owner=owner,
        time_s=burst,
        sustained_s=sustained,
        reasons=np.array(found),
        groups={
            "operator": np.full(len(sheet), operator),
            "precision": precision,
            "kind": kind,
            "software": sheet.text("impl"),
        },
    )


def _rows(each: Floats | NDArray[np.int64]) -> Words:
    """Rows an expert gets, as a group."""
    return np.array([f"{value:g} rows an expert" for value in each.tolist()])
