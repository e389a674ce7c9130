"""From rows of published tables to what the kernel models fit: operators, software, shapes, times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.calibration.published.rows import Column, Rows
from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.attention import latent
from tilewise.hwdb.kernels.collective.fitted import OPERATIONS
from tilewise.hwdb.kernels.grouped_gemm.published import fused
from tilewise.hwdb.kernels.learning.residual import Points
from tilewise.hwdb.kernels.software import Origin, facts, stated
from tilewise.hwdb.precision import NAMES
from tilewise.hwdb.table import Kind, Label, OperatorTable, Phase, table_from_columns

FORMATS = {"bfloat16": "bf16", "float16": "fp16"}
PHASES = {"fwd_context": Phase.FORWARD, "fwd": Phase.FORWARD, "bwd": Phase.BACKWARD, "decode": Phase.DECODE}
ONE = {"attention": ("attention", "mla")}  # families of tables that one model answers for
COLLECTIVES = {"alltoall": "all_to_all", "p2p": "send_recv"}


def points(family: str, found: Mapping[str, Sequence[Rows]]) -> Points | None:
    """The points of a family of GPUs that are fitted together, SKU name -> rows; None where there are none."""
    parts = [(sku, rows) for sku, some in found.items() for rows in some if rows.family in ONE.get(family, (family,))]
    parts = [(sku, rows) for sku, rows in parts if len(rows)]
    if not parts:
        return None
    skus = list(found)
    joined = [(*CONVERT[rows.family](rows), rows, skus.index(sku)) for sku, rows in parts]
    origins = sorted({one for some, _, _, _ in joined for one in some}, key=lambda one: one.name)
    return Points(
        table=_table([columns for _, columns, _, _ in joined]),
        software=np.concatenate([[origins.index(one) for one in some] for some, _, _, _ in joined]),
        origins=tuple(origins),
        gpu=np.concatenate([np.full(len(rows), at) for _, _, rows, at in joined]),
        skus=tuple(map(Database.packaged().sku, skus)),
        shapes=np.concatenate([rows.shapes for _, _, rows, _ in joined]),
        measured_s=np.concatenate([rows.number("time_us") * 1e-6 for _, _, rows, _ in joined]),
    )


def _table(parts: Sequence[Mapping[str, NDArray[Any]]]) -> OperatorTable:
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    length = len(columns["kind"])
    return table_from_columns(
        [Label(name="point", layer="", part="")], length, length, {**columns, "shape": np.arange(length)}
    )


def _format(column: Column) -> list[str]:
    return [FORMATS.get(word, word) for word in column.astype(str).tolist()]


def _gemm(rows: Rows) -> tuple[list[Origin], dict[str, Column]]:
    formats = _format(rows.text("dtype"))
    paths = rows.text("source_path").tolist() if "source_path" in rows.columns else [""] * len(rows)
    words = zip(rows.text("software").tolist(), paths, formats, strict=True)
    software = [stated(name, word, path=path) for name, path, word in words]
    m, n, k, groups = (rows.number(name, 1.0) for name in ("m", "n", "k", "batch"))
    return software, {"kind": _kind(rows, Kind.GEMM), "m": m, "n": n, "k": k, "groups": groups}


def _attention(rows: Rows) -> tuple[list[Origin], dict[str, Column]]:
    phase = [PHASES[word] for word in rows.text("phase").tolist()]
    words = zip(
        phase, rows.text("impl").tolist(), _format(rows.text("dtype")), _format(rows.text("kv_dtype")), strict=True
    )
    software = [stated(s, a, b, phase=one.name.lower()) for one, s, a, b in words]
    sizes = {name: rows.number(name) for name in ("batch", "kv_heads", "head_dim", "seq_q", "seq_kv")}
    causal = rows.number("causal", 1.0)
    return software, {
        "kind": _kind(rows, Kind.ATTENTION), "phase": np.array(phase, np.int64), "heads": rows.number("q_heads"),
        "head_dim_v": sizes["head_dim"], "causal": causal, "window": rows.number("window", 0.0), **sizes,
    }  # fmt: skip


def _mla(rows: Rows) -> tuple[list[Origin], dict[str, Column]]:
    sizes = latent.columns(rows.number("num_heads"), rows.text("phase") == "decode")
    named = {**sizes, "q_heads": sizes["heads"]}
    software, columns = _attention(replace(rows, columns={**rows.columns, **named}))
    return [replace(one, latent=True) for one in software], columns | {"head_dim_v": sizes["head_dim_v"]}


def _moe(rows: Rows) -> tuple[list[Origin], dict[str, Column]]:
    formats = _format(rows.text("dtype"))
    software = [stated(s, f) for s, f in zip(rows.text("impl").tolist(), formats, strict=True)]
    return software, {"kind": _kind(rows, Kind.GROUPED_GEMM), **fused(rows.number, rows.text("distribution").tolist())}


def _kind(rows: Rows, kind: Kind) -> Column:
    return np.full(len(rows), int(kind))


CONVERT: dict[str, Callable[[Rows], tuple[list[Origin], dict[str, Column]]]] = {
    "gemm": _gemm, "attention": _attention, "mla": _mla, "moe": _moe
}  # fmt: skip


def modelled(family: str, rows: Rows) -> NDArray[np.bool_]:
    """Rows in formats and phases that the models know."""
    use = np.ones(len(rows), bool)
    if family in CONVERT:
        known = [word in NAMES or word in facts()["formats"] for word in _format(rows.text("dtype"))]
        use &= np.array(known, bool)
    if family in ("attention", "mla"):
        use &= np.isin(rows.text("phase"), list(PHASES))
    return use


def only(rows: Rows, use: NDArray[np.bool_]) -> Rows:
    """The rows of a mask; the others are counted as dropped."""
    left = int((~use).sum())
    dropped = {**rows.dropped, **({"format or phase that is not modelled": left} if left else {})}
    kept = {name: column[use] for name, column in rows.columns.items()}
    return replace(rows, columns=kept, differ=rows.differ[use], dropped=dropped)


def collectives(rows: Rows) -> tuple[Column, Column, Column, Column]:
    """(operation, ranks, bytes, seconds) of NCCL's or RCCL's own collectives on one board; engines' own left out."""
    op = [COLLECTIVES.get(word, word) for word in rows.text("op").tolist()]
    code = np.array([OPERATIONS.index(word) if word in OPERATIONS else -1 for word in op])
    ranks, size = rows.number("n_gpus"), rows.number("bytes")
    share = np.where(code == 0, 2.0, 1.0) * (ranks - 1) / np.maximum(ranks, 1)
    time_s = rows.number("time_us") * 1e-6
    with np.errstate(divide="ignore", invalid="ignore"):  # rows without a bandwidth state their time
        time_s = np.where(np.isnan(time_s), share * size / (1e9 * rows.number("busbw_gbps")), time_s)
    library = np.array(
        [
            ("nccl" in word.lower() or "rccl" in word.lower()) and "custom" not in word
            for word in rows.text("impl").tolist()
        ]
    )
    use = library & (code >= 0) & (ranks <= 8) & (ranks >= 2) & np.isfinite(time_s) & (time_s > 0) & (size >= 256)
    return code[use], ranks[use], size[use], time_s[use]
