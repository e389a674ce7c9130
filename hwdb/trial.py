"""A trial: whether a calibration answers at all. Files that can be read may still hold models that no kernel model understands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import NotAvailable, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kinds import by_code
from tilewise.hwdb.launch import MODES
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, Kind, Label, Layout, OperatorTable, Phase, table_from_columns
from tilewise.hwdb.times import State, Times

SIZES = (8, 512, 4096)
OPS = ("copy", "add", "rmsnorm", "gated_activation", "adamw", "cross_entropy")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def tried(calibration: Calibration, sku: Sku) -> None:
    """Raises NotAvailable (BAD_CALIBRATION) where a calibration fails at ordinary operators, or answers no sane times."""
    gpu, table = Gpu(sku, calibration), _table(sku)
    try:
        with np.errstate(all="ignore"):
            for state in State:
                _check(gpu.predict(table, state))
            gpu.energy(table, gpu.predict(table), State.BURST, np.array([1e-3]))
        for mode in MODES:
            cost = gpu.launch(mode)
            _ordered((0.0, *cost.issue_s))
            _ordered((0.0, *cost.gap_s))
    except Exception as error:  # whatever it is, the files are at fault: the packaged calibrations pass
        why = error.message if isinstance(error, TilewiseError) else f"{type(error).__name__}: {error}"
        message = f"calibration {calibration.id} cannot answer; {why}"
        raise NotAvailable(message, reason="BAD_CALIBRATION", field="calibration") from error


def _check(times: Times) -> None:
    kept = ~times.refused
    _ordered((np.zeros(kept.sum()), times.low_s[kept], times.time_s[kept], times.high_s[kept]))


def _ordered(values: Sequence[object]) -> None:
    """Raises ValueError where one is above the next, or no number."""
    if not (np.isfinite(values[-1]).all() and all(np.less_equal(low, high).all() for low, high in pairwise(values))):  # type: ignore[call-overload]
        raise ValueError("a time lies outside of its interval, or is no number")


def _table(sku: Sku) -> OperatorTable:
    """Some operators of each kind, small and large: in 16 bits, which every GPU has, and products in all its formats."""
    rows = [*_gemms(sku), *_attentions(), *_others()]
    columns = {name: np.array([row.get(name, 0) for row in rows]) for name in {name for row in rows for name in row}}
    columns["groups"] = np.maximum(columns["groups"], 1)
    labels = (Label(name="trial", layer="trial", part="trial"),)
    columns["precision"] = np.where(
        by_code(lambda record: record.tiled)[columns["kind"]], columns["precision"], int(Precision.BF16)
    )
    return table_from_columns(labels, 1, len(rows), columns)


def _gemms(sku: Sku) -> list[dict[str, float]]:
    return [
        {"kind": kind, "m": m, "n": n, "k": 512, "layout": layout, "output_bytes": 2, "groups": groups, "precision": precision,
         "flops": 2.0 * m * n * 512 * groups, "executed_flops": 2.0 * m * n * 512 * groups,
         "bytes_read": 1024.0 * (m + n) * groups, "bytes_written": 2.0 * m * n * groups}
        for kind, groups in ((Kind.GEMM, 1), (Kind.GROUPED_GEMM, 8))
        for precision, form in FORMATS.items() if form.peak in sku.peaks
        for m in SIZES for n in SIZES[1:] for layout in Layout
    ]  # fmt: skip


def _attentions() -> list[dict[str, float]]:
    return [
        {"kind": Kind.ATTENTION, "phase": phase, "batch": 2, "heads": 8, "kv_heads": 8, "head_dim": 64, "head_dim_v": 64,
         "seq_q": 1 if phase is Phase.DECODE else length, "seq_kv": length, "causal": 1, "special": 1e6,
         "flops": 1e8, "executed_flops": 1e8, "bytes_read": 1e6, "bytes_written": 1e6}
        for phase in Phase for length in SIZES[1:]
    ]  # fmt: skip


def _others() -> list[dict[str, float]]:
    memory: list[dict[str, float]] = [
        {"kind": Kind.MEMORY, "op": OP_CODES[op], "rows": rows, "cols": 512, "bytes_read": 1024.0 * rows,
         "bytes_written": 1024.0 * rows}
        for op in OPS for rows in SIZES
    ]  # fmt: skip
    collective: list[dict[str, float]] = [
        {"kind": Kind.COLLECTIVE, "op": OP_CODES[op], "message_bytes": 2.0**20, "ranks": 8} for op in COLLECTIVES
    ]
    return memory + collective
