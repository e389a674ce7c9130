"""Rows: a published table as columns, in the columns of a plain CSV, whatever importer they come from."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.hwdb.record import Record

Column = NDArray[Any]
FAMILIES = {  # columns that tell a family's table, and that make up the shape of a row
    "moe": ("num_tokens", "hidden", "moe_inter", "topk", "num_experts", "moe_tp", "moe_ep"),
    "attention": ("phase", "batch", "q_heads", "kv_heads", "head_dim", "seq_q", "seq_kv"),
    "mla": ("phase", "batch", "num_heads", "seq_q", "seq_kv", "tp_size"),
    "collective": ("op", "n_gpus", "bytes"),
    "quantize": ("op", "rows", "cols", "bytes_moved"),
    "gemm": ("m", "n", "k"),
}


class Rows(Record):
    """One family's rows of one SKU. columns: text or numbers, each of shape (rows,); dropped: rows left out, by reason;

    sources: rows kept, by key of sources.toml; differ: log by which the true SKU of some rows may differ, shape (rows,)
    """

    family: str
    columns: Mapping[str, Column]
    dropped: Mapping[str, int]
    sources: Mapping[str, int]
    differ: Column

    def __len__(self) -> int:
        return len(self.differ)

    def text(self, name: str) -> Column:
        return self.columns[name].astype(str)

    def number(self, name: str, empty: float = np.nan) -> Column:
        """A column as numbers, `empty` where nothing stands or where there is no such column."""
        if name not in self.columns:
            return np.full(len(self), empty)
        column = self.columns[name]
        values = column if column.dtype.kind in "fi" else [float(word or "nan") for word in column.tolist()]
        found = np.asarray(values, float)
        return np.where(np.isnan(found), empty, found)

    @property
    def shapes(self) -> NDArray[np.str_]:
        """One text a row that tells its shape, whatever software ran it, and whichever rank of how many."""
        return shape_texts(self.family, self.columns, without=("tp_size",))


def shape_texts(family: str, columns: Mapping[str, Column], without: Sequence[str] = ()) -> NDArray[np.str_]:
    """The shape columns of rows, joined by "/", numbers without a trailing zero."""
    parts = [[_plain(word) for word in columns[name].tolist()] for name in FAMILIES[family] if name not in without]
    return np.array(["/".join(row) for row in zip(*parts, strict=True)])


def _plain(word: Any) -> str:
    try:
        return f"{float(word):g}"
    except ValueError:
        return str(word)


@cache
def facts() -> dict[str, Any]:
    """sources.toml."""
    return tomllib.loads((files("tilewise.calibration.published") / "sources.toml").read_text(encoding="utf-8"))


def read(path: Path, sku: str) -> Rows | None:
    """The rows of a CSV table that are about one SKU and have no flag against them; None for a table of another kind.

    Raises InvalidInput (BAD_TABLE) where lines are of unequal length.
    """
    with path.open(newline="", encoding="utf-8") as stream:
        head, *body = list(csv.reader(stream)) or [[]]
    if any(len(row) != len(head) for row in body):
        raise InvalidInput(f"{path} has lines of unequal length", reason="BAD_TABLE", field="table")
    family = next((name for name, needs in FAMILIES.items() if {*needs, "gpu", "time_us"} <= {*head}), None)
    if family is None or not body:
        return None
    columns = {name: np.array(cells) for name, cells in zip(head, zip(*body, strict=True), strict=True)}
    return kept(family, columns, sku)


def kept(family: str, columns: Mapping[str, Column], sku: str) -> Rows:
    """The rows of a table that may be fitted for a SKU."""
    about, differ = _about(columns["gpu"].tolist(), sku)
    reasons = np.array([_flag(note) for note in columns["notes"].tolist()] if "notes" in columns else [""] * len(about))
    reasons = np.where((reasons == "") & ~_shaped(family, columns), "shape or time not stated", reasons)
    keys = np.array([source_key(text) for text in columns["source"].tolist()])
    reasons = np.where((reasons == "") & (keys == ""), "source not listed in sources.toml: licence unknown", reasons)
    use = about & (reasons == "")
    dropped = {why: int((about & (reasons == why)).sum()) for why in sorted(set(reasons[about].tolist()) - {""})}
    some = {name: column[use] for name, column in columns.items()}
    named, counts = np.unique(keys[use], return_counts=True)
    sources = dict(zip(named.tolist(), counts.tolist(), strict=True))
    return Rows(family, some, dropped, sources, differ[use])


def source_key(text: str) -> str:
    """The key of sources.toml for what a table's `source` says; "" for one that is not listed, so of unknown licence."""
    for key, entry in facts()["source"].items():
        if any(text.startswith(prefix) for prefix in entry["prefix"]):
            return str(key)
    return ""


def _about(names: Sequence[str], sku: str) -> tuple[Column, Column]:
    """Which rows are about a SKU, and by how much (log) the true one may differ."""
    found = {name: _same(name, sku) for name in set(names)}
    differ = np.array([found[name] for name in names])
    return np.isfinite(differ), np.nan_to_num(differ)


def _same(name: str, sku: str) -> float:
    ambiguous = facts()["ambiguous"].get(name)
    if ambiguous:
        return float(ambiguous["differ"]) if sku in ambiguous["skus"] else np.nan
    try:
        return 0.0 if Database.packaged().resolve(name).sku == sku else np.nan
    except TilewiseError:
        return np.nan


def _flag(note: str) -> str:
    return next((why for flag, why in facts()["drop"].items() if flag in note), "")


def _shaped(family: str, columns: Mapping[str, Column]) -> Column:
    """Rows whose sizes and time are stated (a collective may state its bus bandwidth instead)."""
    timed: Column = columns["time_us"].astype(str) != ""
    if "busbw_gbps" in columns:
        timed |= columns["busbw_gbps"].astype(str) != ""
    for name in FAMILIES[family]:
        timed &= columns[name].astype(str) != ""
    return timed
