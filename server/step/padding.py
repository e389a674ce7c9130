"""Which products torch.compile pads to whole vectors of 16 bytes, and what the padding costs.

Inductor (torch 2.11, torch/_inductor/fx_passes/pad_mm.py) asks each product of the joint graph alone: forward, input
gradient and weight gradient. It pads where a size is off 8 elements (4 in fp32) and the plain product takes over 1.1 times
the padded one in its own benchmark. That benchmark counts the copy of an operand that is a graph input or a transposed view
(weights, the gradient of a weight gradient's first side), and leaves out what the kernel before it can write padded. Its
other condition, is_mm_compute_bound, holds for every product on an H100: torch has no entry for the device and takes 0.54 for
its TFLOPS (measured, 2026-11-28). Which rows pad is decided here by the times of the GPU's own models.

Copies are kernels of the step: an operand that pays is read and written; the gradient of an output is written in both layouts
at once. A weight gradient whose rows are off is copied into the parameter's own layout. All of it is read off traces of three
models with odd sizes (H100, 2026-11-28).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import COLUMNS, OP_CODES, Floats, Ints, Kind, Label, Layout, OperatorTable, table_from_columns
from tilewise.hwdb.times import State
from tilewise.server.architecture.sizes import UnlikeShapes

VECTOR_BYTES = 16
FASTER = 1.1  # pad_mm.py: is_padded_faster's multiplier
PADS = (Precision.BF16, Precision.FP16, Precision.FP32, Precision.TF32)
BOTH_LAYOUTS = 2.0  # a gradient is written once for each of the two products that read it
Mask = NDArray[np.bool_]


def padded(gpu: Gpu, table: OperatorTable, without: Container[str] = ()) -> OperatorTable:
    """The table of a compiled step with its padded products, and their copies as rows of their own after them.

    without: layers that are not compiled
    Raises UnlikeShapes where candidates differ in what is padded.
    """
    wide = _padded(table)
    plain = [at for at, label in enumerate(table.labels) if label.layer in without]
    rows = np.flatnonzero(wide.changed & ~np.isin(table.label, plain))
    if not len(rows):
        return table
    pays = np.zeros(len(table), bool)
    pays[rows] = _faster(gpu, table.select(rows), wide.table.select(rows))
    _check_alike(pays, table)
    if not pays.any():
        return table
    return _with_copies(_chosen(table, wide.table, pays), table, pays)


def padding_bytes(table: OperatorTable) -> Any:
    """Bytes of the padded copies for the head's gradients, of each shape; 0 where there are none."""
    pads = [(label.name, label.direction) == ("lm_head.pad", "backward") for label in table.labels]
    if not any(pads):
        return np.zeros(table.shapes) if table.shapes > 1 else 0.0
    rows = np.array(pads, bool)[table.label]
    found = np.bincount(table.shape[rows], table.bytes_written[rows], table.shapes)
    return found if table.shapes > 1 else float(found[0])


class Padded(Record):
    """changed: products with a size off whole vectors; table: with those sizes rounded up."""

    changed: Mask
    table: OperatorTable


def _padded(table: OperatorTable) -> Padded:
    width = np.array([max(FORMATS[precision].bytes, 1) for precision in Precision])[table.precision]
    unit = (VECTOR_BYTES / width).astype(np.int64)
    m, n, k = (_up(getattr(table, name), unit) for name in ("m", "n", "k"))
    asked = (
        (table.kind == Kind.GEMM.value) & (table.library == 0) & (table.groups == 1) & np.isin(table.precision, PADS)
    )
    changed = asked & ((m != table.m) | (n != table.n) | (k != table.k))
    element = table.bytes_read / np.maximum(table.m * table.k + table.n * table.k, 1)
    copied = changed & (copied_bytes(table, m, n, k) > 0)
    wide = replace(
        table, m=m, n=n, k=k, executed_flops=2.0 * m * n * k, bytes_read=element * k * (m + n),
        bytes_written=table.output_bytes * m * n,
        # a copy lies as the product reads it best: both operands along their rows
        layout=np.where(copied, int(Layout.INPUT_GRADIENT), table.layout),
    )  # fmt: skip
    return Padded(changed, wide)


def _up(size: NDArray[Any], unit: Ints) -> NDArray[Any]:
    """To the next whole vector; a size of 1 stays, as it can be squeezed away."""
    return np.where(size > 1, -(-size // unit) * unit, size).astype(size.dtype)


def copied_bytes(table: OperatorTable, m: Floats, n: Ints, k: Ints) -> Floats:
    """Bytes of the operand that must be copied to be padded, as it is written; 0 where the kernel before pads it.

    Forward and input gradient: the weight, n x k. Weight gradient: the output's gradient, m x k.
    """
    output = table.layout == Layout.WEIGHT_GRADIENT.value
    off = np.where(output, m != table.m, n != table.n) | (k != table.k)
    element = table.bytes_read / np.maximum(table.m * table.k + table.n * table.k, 1)
    size: Floats = np.where(off, np.where(output, m, n) * k * element, 0.0)
    return size


def _faster(gpu: Gpu, plain: OperatorTable, wide: OperatorTable) -> Mask:
    """Whether inductor's benchmark finds the padded product faster. Its copy fills all and then writes what is there."""
    before, after = (gpu.predict(one, State.BURST).time_s for one in (plain, wide))
    written = copied_bytes(plain, wide.m, wide.n, wide.k)
    copied = np.flatnonzero((written > 0) & (before > FASTER * after))  # where a copy can still decide
    sizes, place = np.unique(written[copied], return_inverse=True)
    fill, copy = (
        gpu.predict(_traffic(op, sizes, read), State.BURST).time_s for op, read in (("fill", 0.0), ("transpose", 1.0))
    )
    copies = np.zeros(len(plain))
    copies[copied] = (fill + copy)[place]
    found: Mask = before > FASTER * (after + copies)
    return found


def _traffic(op: str, written: Floats, read: float) -> OperatorTable:
    """Memory-bound rows, alone in a table of their own."""
    length = len(written)
    columns = {
        "kind": np.full(length, int(Kind.MEMORY)), "op": np.full(length, OP_CODES[op]), "rows": np.ones(length),
        "cols": written / 2, "bytes_read": read * written, "bytes_written": written,
        "precision": np.full(length, int(Precision.BF16)),
    }  # fmt: skip
    return table_from_columns([Label(name=op, layer="", part="")], 1, length, columns)


def _check_alike(pays: Mask, table: OperatorTable) -> None:
    by_row = pays.reshape(-1, table.shapes)
    uneven = by_row.any(axis=1) & ~by_row.all(axis=1)
    if uneven.any():
        raise UnlikeShapes(by_row[uneven.argmax()])


def _chosen(table: OperatorTable, wide: OperatorTable, pays: Mask) -> OperatorTable:
    names = ("m", "n", "k", "layout", "executed_flops", "bytes_read", "bytes_written")
    return replace(table, **{name: np.where(pays, getattr(wide, name), getattr(table, name)) for name in names})


def _with_copies(table: OperatorTable, before: OperatorTable, pays: Mask) -> OperatorTable:
    """`table` with the copies of its padded products at the end."""
    written = np.where(pays, copied_bytes(before, table.m, table.n, table.k), 0.0)
    output = before.layout == Layout.WEIGHT_GRADIENT.value
    result = np.where(pays & output & (table.n != before.n), before.m * before.n * before.output_bytes, 0.0)
    operands = _copies(before, "pad", written, written * np.where(output, BOTH_LAYOUTS, 1.0), "copy", written > 0)
    results = _copies(before, "unpad", result, result, "transpose", result > 0)
    return _joined(_joined(table, operands), results)


def _copies(table: OperatorTable, word: str, read: Floats, written: Floats, op: str, rows: Mask) -> OperatorTable:
    """Copies for some products of a table, in the products' own places."""
    some, (read, written) = table.select(rows), (read[rows], written[rows])
    used, label = np.unique(some.label, return_inverse=True)
    labels = tuple(replace(table.labels[code], name=f"{table.labels[code].name}.{word}") for code in used.tolist())
    blank = table_from_columns(labels, table.shapes, len(some), {}) if len(some) else some
    return replace(
        blank, labels=labels, label=label.astype(np.int64), shape=some.shape, count=some.count,
        kind=np.full(len(some), int(Kind.MEMORY)), op=np.full(len(some), OP_CODES[op]), precision=some.precision,
        rows=np.ones(len(some)), cols=read / 2, bytes_read=read, bytes_written=written,
    )  # fmt: skip


def _joined(table: OperatorTable, more: OperatorTable) -> OperatorTable:
    """The rows of both; every label of `more` is new."""
    if not len(more):
        return table
    columns = {name: np.concatenate([getattr(table, name), getattr(more, name)]) for name in COLUMNS}
    columns["label"][len(table) :] += len(table.labels)
    return OperatorTable(labels=(*table.labels, *more.labels), shapes=table.shapes, **columns)
