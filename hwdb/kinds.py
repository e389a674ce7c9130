"""What a kind of operator is, one record each: nothing may depend on the order or on the number of the kinds.

Kinds whose records say the same of a matter are treated alike there, whatever they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb import record
from tilewise.hwdb.table import Kind, OperatorTable, Phase

Sizes = Mapping[str, float]
Mask = NDArray[np.bool_]


class Record(record.Record, kw_only=True):
    """One kind of operator.

    name:       also of its folder in hwdb/kernels, of its model in a calibration, and on the wire
    multiplies: runs on the matrix units, so that it has a peak and an MFU
    tiled:      a product that is cut into tiles of its output
    sizes:      columns that say how large it is (at most four): two operators are near where these are
    spreads:    name of the roofline's error (roofline.toml) by Phase; one name where it has no phases
    shown, words: its sizes for a reader, and the columns of a row that they are read from
    """

    name: str
    multiplies: bool
    tiled: bool
    sizes: tuple[str, ...]
    spreads: tuple[str, ...]
    shown: tuple[str, ...]
    words: Callable[[Sizes], str]


def _product(row: Sizes) -> str:
    groups = f" x {row['groups']:.0f} groups" if row["groups"] > 1 else ""
    return f"{row['m']:.0f} x {row['n']} x {row['k']}{groups}"


def _experts(row: Sizes) -> str:
    return f"{row['m']:.0f} rows over {row['groups']:.4g} experts x {row['n']} x {row['k']}"


def _attention(row: Sizes) -> str:
    heads = f"{row['heads']}/{row['kv_heads']} heads of {row['head_dim']}"
    return f"{row['batch']} x {row['seq_q']} x {row['seq_kv']}, {heads}"


def _matrix(row: Sizes) -> str:
    return f"{row['rows']:.0f} x {row['cols']:.0f}"


def _message(row: Sizes) -> str:
    return f"{row['message_bytes']:.0f} bytes over {row['ranks']} ranks"


KINDS: dict[Kind, Record] = {
    Kind.GEMM: Record(
        name="gemm", multiplies=True, tiled=True, sizes=("m", "n", "k", "groups"), spreads=("gemm",),
        shown=("m", "n", "k", "groups"), words=_product,
    ),
    Kind.GROUPED_GEMM: Record(
        name="grouped_gemm", multiplies=True, tiled=True, sizes=("m", "n", "k", "groups"), spreads=("grouped_gemm",),
        shown=("m", "n", "k", "groups"), words=_experts,
    ),
    Kind.ATTENTION: Record(
        name="attention", multiplies=True, tiled=False, sizes=("heads", "seq_q", "seq_kv", "head_dim"),
        spreads=tuple(f"attention_{phase.name.lower()}" for phase in Phase),
        shown=("batch", "heads", "kv_heads", "head_dim", "seq_q", "seq_kv"), words=_attention,
    ),
    Kind.MEMORY: Record(
        name="memory", multiplies=False, tiled=False, sizes=("rows", "cols"), spreads=("memory",),
        shown=("rows", "cols"), words=_matrix,
    ),
    Kind.COLLECTIVE: Record(
        name="collective", multiplies=False, tiled=False, sizes=("message_bytes", "ranks"), spreads=("collective",),
        shown=("message_bytes", "ranks"), words=_message,
    ),
}  # fmt: skip

MULTIPLYING, PRODUCTS = (  # names of the kinds that run on the matrix units, and of those that are products
    frozenset(record.name for record in KINDS.values() if getattr(record, flag)) for flag in ("multiplies", "tiled")
)


def by_code(value: Callable[[Record], Any]) -> NDArray[Any]:
    """`value` of every kind's record, indexed by the kind's code."""
    values = {int(kind): value(record) for kind, record in KINDS.items()}
    blank = next(iter(values.values()))
    return np.array([values.get(code, blank) for code in range(max(values) + 1)])


@cache
def _flags(name: str) -> Mask:
    return by_code(lambda record: getattr(record, name))


def multiplies(table: OperatorTable) -> Mask:
    """Rows that run on the matrix units."""
    found: Mask = _flags("multiplies")[table.kind]
    return found


def tiled(table: OperatorTable) -> Mask:
    """Rows that are products cut into tiles."""
    found: Mask = _flags("tiled")[table.kind]
    return found
