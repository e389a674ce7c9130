"""The tables of docs/hardware.md, from the SKU files."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.hwdb.database import Database
from tilewise.hwdb.sku import Sku

PEAKS = ("fp64", "fp64_matrix", "fp32", "tf32", "bf16", "fp16", "int8", "fp8", "mxfp8", "mxfp6", "mxfp4", "nvfp4")


def tables() -> str:
    database = Database.packaged()
    skus = [database.sku(name) for name in database.skus()]
    parts = [_boards(skus), _peaks(skus), _ceilings(skus), _names(skus), _reasons(skus)]
    return "\n".join(parts)


def _boards(skus: Sequence[Sku]) -> str:
    title = (
        "SKU",
        "SMs or CUs",
        "boost MHz",
        "tensor-peak MHz",
        "memory",
        "GB",
        "TB/s",
        "L2 MB",
        "link GB/s",
        "W",
        "exp/clk/SM",
    )
    keys = (
        *(("sm_count", 1.0), ("clock_boost_hz", 1e6), ("clock_tensor_hz", 1e6), ("hbm_type", 0.0), ("hbm_bytes", 1e9)),
        *(("hbm_bytes_per_s", 1e12), ("l2_bytes", 1e6), ("link_bytes_per_s", 1e9), ("tdp_w", 1.0)),
        ("exp_per_clock_per_sm", 1.0),
    )
    rows = [(f"`{sku.name}`", *(_figure(sku, key, unit) for key, unit in keys)) for sku in skus]
    return "## Boards\n\n" + _table(title, rows)


def _peaks(skus: Sequence[Sku]) -> str:
    rows = []
    for sku in skus:
        marks = {sku.peaks[key].mark for key in sku.peaks}
        values = [f"{float(sku.peaks[key].value) / 1e12:.6g}" if key in sku.peaks else "" for key in PEAKS]
        rows.append((f"`{sku.name}`", *values, " ".join(f"[{mark}]" for mark in sorted(marks))))
    return "## Dense peaks, TFLOPS (int8: TOPS)\n\n" + _table(("SKU", *PEAKS, "mark"), rows)


def _ceilings(skus: Sequence[Sku]) -> str:
    rows = [
        (f"`{sku.name}`", f"`{key}`", f"{ceiling.value:.4g}", ceiling.trust.name.lower(), ceiling.source, ceiling.mark)
        for sku in skus
        for key, ceiling in sku.ceilings.items()
    ]
    head = "## Ceilings\n\nThe best that somebody measured. A SKU without rows here is answered from its siblings' fractions.\n\n"
    return head + _table(("SKU", "ceiling", "value", "trust", "source", "mark"), rows)


def _names(skus: Sequence[Sku]) -> str:
    rows = [
        (f"`{sku.name}`", sku.title, ", ".join(sku.names.aliases), ", ".join(sku.names.families), sku.names.note)
        for sku in skus
    ]
    head = "## Names\n\nA name that is too short to tell the boards apart is refused with the list of boards.\n\n"
    return head + _table(("SKU", "board", "also", "too short", "note"), rows)


def _reasons(skus: Sequence[Sku]) -> str:
    rows = [(f"`{sku.name}`", key, reason) for sku in skus for key, reason in sku.unproven.items()]
    notes = [(f"`{sku.name}`", "", note) for sku in skus for note in sku.notes]
    head = "## Open questions\n\nPeaks that are not SMs x clock x FLOP per clock within 3 %, and figures on which sources disagree.\n\n"
    return head + _table(("SKU", "peak", "why"), rows + notes)


def _figure(sku: Sku, key: str, unit: float) -> str:
    if key not in sku.figures:
        return ""
    figure = sku.figures[key]
    value = figure.value if isinstance(figure.value, str) else f"{figure.value / unit:.5g}"
    return f"{value} [{figure.mark}]"


def _table(title: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [title, ["---"] * len(title), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
