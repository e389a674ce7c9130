"""Emitter: collects operators one by one, for one shape or a thousand, and stacks them into an OperatorTable.

A column's value is a number or an array of shape (shapes,); nothing here loops over shapes. While the forward pass is
emitted, `save` notes what autograd keeps for the backward, so that memory is read off the same walk.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kinds import KINDS
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import (
    COLUMNS,
    OP_CODES,
    Kind,
    Label,
    Layout,
    OperatorTable,
    Phase,
    kernel_codes,
    table_from_columns,
)
from tilewise.server.operators.numbers import Number, larger, smaller
from tilewise.server.operators.sequences import Launches

# Enum members are slow to look up, and these are looked up for every row.
_GEMM, _GROUPED, _ATTENTION = int(Kind.GEMM), int(Kind.GROUPED_GEMM), int(Kind.ATTENTION)
_MEMORY, _COLLECTIVE = int(Kind.MEMORY), int(Kind.COLLECTIVE)
_MULTIPLY = frozenset(int(kind) for kind, record in KINDS.items() if record.multiplies)

Row = dict[str, Number]
codes = cache(kernel_codes)


class Event(Record):
    """Bytes that the forward saves, or that the backward makes as a gradient while `working` bytes are alive."""

    saved: Number
    gradient: Number = 0
    working: Number = 0


class Scope:
    """What `Emitter.scope` gives to a `with`."""

    __slots__ = ("before", "emitter", "inside")

    def __init__(self, emitter: Emitter, inside: tuple[str, str, Number]) -> None:
        self.emitter, self.inside = emitter, inside

    def __enter__(self) -> None:
        e = self.emitter
        self.before = e.layer, e.part, e.count
        e.layer, e.part, e.count = self.inside
        e.repeats[e.layer] = e.count

    def __exit__(self, *_: object) -> None:
        e = self.emitter
        e.layer, e.part, e.count = self.before


class Emitter:
    """Rows of one walk over an architecture.

    saved:   bytes kept for the backward by each layer label, for one of its repeats
    live:    bytes that one repeat of a checkpointed layer keeps while its backward runs
    events:  what one repeat of a layer saves, and the weight gradients it makes of it, in forward order
    transients: largest working set of one repeat, beyond what is saved
    repeats: how often each layer label repeats
    forward: direction of what is emitted as forward ("recompute" while a checkpointed layer runs again)
    precision: format of activations, which most memory-bound kernels read
    keep:    whether backward rows and saved bytes are noted (not while recomputing)
    """

    def __init__(self, precision: Precision = Precision.BF16) -> None:
        self.precision = precision
        self.rows: list[Row] = []
        self.labels: dict[tuple[str, str, str, str], int] = {}
        self.saved: dict[str, Number] = defaultdict(int)
        self.live: dict[str, Number] = {}
        self.events: dict[str, list[Event]] = defaultdict(list)
        self.transients: dict[str, Number] = {}
        self.repeats: dict[str, Number] = {}
        self.forward = "forward"
        self.keep = True
        self.layer = ""
        self.part = ""
        self.count: Number = 1

    def scope(self, *, layer: str | None = None, part: str | None = None, count: Number | None = None) -> Scope:
        """Rows emitted inside belong to this layer and part and repeat `count` times."""
        inside = (
            self.layer if layer is None else layer, self.part if part is None else part, self.count if count is None else count
        )  # fmt: skip
        return Scope(self, inside)

    def add(self, name: str, direction: str, kind: int, repeat: Number = 1, **columns: Number) -> None:
        """Append one row; `repeat` multiplies the scope's count."""
        key = (name, self.layer, self.part, direction)
        row: Row = columns
        row["label"] = self.labels.setdefault(key, len(self.labels))
        row["kind"] = kind
        row["count"] = self.count * repeat
        self.rows.append(row)

    def save(self, num_bytes: Number) -> None:
        """Note `num_bytes` that autograd keeps until the backward of this layer, per repeat."""
        self.saved[self.layer] = self.saved[self.layer] + num_bytes
        self.events[self.layer].append(Event(num_bytes))

    def gradient(self, num_bytes: Number, working: Number) -> None:
        """Note a weight gradient of `num_bytes`; `working` bytes of output and input gradient are alive beside it."""
        self.events[self.layer].append(Event(0, num_bytes, working))

    def work(self, num_bytes: Number) -> None:
        """Note a working set of `num_bytes` in this layer; the largest counts."""
        before = self.transients.get(self.layer, 0)
        self.transients[self.layer] = larger(before, num_bytes)

    @property
    def transient(self) -> Number:
        """The largest working set of any layer."""
        most: Number = 0
        for size in self.transients.values():
            most = larger(most, size)
        return most

    @staticmethod
    def block_label(stack: str, layers: tuple[int, ...]) -> str:
        """Layer label of a block: "decoder.0-31" where its layers are consecutive, "decoder.0,2..30" where not."""
        first, last = layers[0], layers[-1]
        if last - first + 1 == len(layers):
            return f"{stack}.{first}" if len(layers) == 1 else f"{stack}.{first}-{last}"
        return f"{stack}.{first},{layers[1]}..{last}"

    def memory(
        self,
        name: str,
        kernel: str,
        rows: Number,
        cols: Number,
        read: Number,
        written: Number,
        *,
        direction: str = "forward",
        repeat: Number = 1,
        kernels: Number = 1,
        special: Number = 0,
        flops: Number = 0,
        wide: bool = False,
        library: int = 0,
    ) -> None:
        """One memory-bound kernel ("op" or "op.variant") over rows x cols, `read` and `written` bytes in all.

        wide: its first input is fp32 whatever the activations are; library: hwdb.table.ENGINES_OWN for an engine's kernel
        """
        code, variant = codes(kernel)
        self.add(
            name, direction, _MEMORY, repeat, op=code, variant=variant, rows=rows, cols=cols, bytes_read=read,
            bytes_written=written, precision=Precision.FP32 if wide else self.precision, kernels=kernels, special=special, flops=flops if self.keep else 0, executed_flops=flops,
            library=library,
        )  # fmt: skip

    def launches(
        self,
        name: str,
        sequence: tuple[Launches, ...],
        rows: Number,
        cols: Number,
        width: int,
        *,
        direction: str = "forward",
        repeat: Number = 1,
    ) -> None:
        """Every kernel of a framework operation over rows x cols; `width` is the bytes of an activation element.

        Each reads what the one before wrote, as far as it reads a matrix: that comes from L2, where it fits.
        """
        before: Number = 0
        for launch in sequence:
            if launch.only_narrow and width == 4:
                continue
            inner = cols * launch.share if launch.share != 1 else cols
            elements = rows * inner
            read = launch.read.bytes(rows, inner, elements, width)
            written = launch.written.bytes(rows, inner, elements, width)
            special = launch.special * (elements if launch.special_per == "element" else rows)
            recent = smaller(read, written if launch.times > 1 else before)
            before = written
            self.add(
                name, direction, _MEMORY, repeat * launch.times, op=launch.op, variant=launch.variant, rows=rows,
                cols=inner if launch.whole else 1, bytes_read=read, bytes_written=written, recent_bytes=recent, kernels=launch.kernels,
                special=special, precision=Precision.FP32 if launch.wide else self.precision,
            )  # fmt: skip

    def gemm(
        self,
        name: str,
        m: Number,
        n: Number,
        k: Number,
        *,
        precision: Precision,
        widths: tuple[float, float, float],
        layout: Layout = Layout.FORWARD,
        direction: str = "forward",
        groups: Number = 1,
        library: int = 0,
        needed: Number = 1,
    ) -> None:
        """A (batched) matrix product y[m,n]; `widths` are the bytes of an element of x, of w and of y; needed: the model's part."""
        work = 2.0 * m * n * k * groups
        self.add(
            name, direction, _GEMM, m=m, n=n, k=k, groups=groups, layout=layout, precision=precision, library=library,
            flops=needed * work if self.keep else 0, executed_flops=work, output_bytes=widths[2],
            bytes_read=groups * k * (widths[0] * m + widths[1] * n), bytes_written=groups * widths[2] * m * n,
        )  # fmt: skip

    def grouped_gemm(
        self,
        name: str,
        m: Number,
        n: Number,
        k: Number,
        groups: Number,
        *,
        precision: Precision,
        widths: tuple[float, float, float],
        layout: Layout = Layout.FORWARD,
        direction: str = "forward",
        skew: Number = 0.0,
    ) -> None:
        """m rows in all (a weight gradient: k), shared by `groups` experts; an expert's matrix moves once."""
        work = 2.0 * m * n * k
        inputs, output = m * k * widths[0], groups * n * k * widths[1]
        read, written = inputs + output, m * n * widths[2]
        if layout == Layout.WEIGHT_GRADIENT:  # k rows in all; every expert has a gradient, hit or not
            read, written = k * (m * widths[0] + n * widths[1]), groups * m * n * widths[2]
        self.add(
            name, direction, _GROUPED, m=m, n=n, k=k, groups=groups, layout=layout, precision=precision, skew=skew,
            flops=work if self.keep else 0, executed_flops=work, output_bytes=widths[2], bytes_read=read,
            bytes_written=written, kernels=2,
        )  # fmt: skip

    def attention(self, name: str, phase: Phase, *, direction: str = "forward", **columns: Number) -> None:
        self.add(name, direction, _ATTENTION, phase=phase, **columns)

    def collective(
        self,
        name: str,
        op: str,
        message: Number,
        ranks: int,
        *,
        direction: str = "forward",
        repeat: Number = 1,
        library: int = 0,
    ) -> None:
        """A collective of `message` bytes per rank; nothing where there is one rank."""
        if ranks > 1:
            self.add(
                name, direction, _COLLECTIVE, repeat, op=OP_CODES[op], message_bytes=message, ranks=ranks,
                bytes_read=message, bytes_written=message, library=library,
            )  # fmt: skip

    def table(self) -> OperatorTable:
        """Stack the rows that do anything: index = row * shapes + shape. A tower without tokens does nothing."""
        rows = [row for row in self.rows if _works(row)]
        names = list(self.labels)
        used = {code: index for index, code in enumerate(dict.fromkeys(int(row["label"]) for row in rows))}
        length, shapes = len(rows), self._shapes()
        size = (length, shapes) if shapes > 1 else (length,)
        columns: dict[str, NDArray[Any]] = {name: np.zeros(size, dtype) for name, dtype in COLUMNS.items()}
        columns["groups"][:] = columns["kernels"][:] = 1
        if shapes > 1:
            columns["shape"][:] = np.arange(shapes)
        for index, row in enumerate(rows):
            for name, value in row.items():
                columns[name][index] = value
            columns["label"][index] = used[int(row["label"])]
        flat = {name: column.reshape(-1) for name, column in columns.items()}
        labels = [Label(name=n, layer=layer, part=p, direction=d) for n, layer, p, d in (names[code] for code in used)]
        return table_from_columns(labels, shapes, length * shapes, flat)

    def _shapes(self) -> int:
        """Candidates: every size of a row enters its bytes, depth its count, and a window its FLOPs."""
        for row in self.rows:
            for value in (row["bytes_read"], row["bytes_written"], row["count"], row.get("flops")):
                if isinstance(value, np.ndarray):
                    return len(value)
        return 1


def _works(row: Row) -> bool:
    """Products of no rows still name their weights' bytes, so it is their FLOPs that count."""
    if row["kind"] in _MULTIPLY:
        return _some(row["executed_flops"])
    return _some(row["bytes_read"]) or _some(row["bytes_written"])


def _some(value: Number) -> bool:
    """Whether any shape has some of it; numpy's own question takes ten times as long for one number."""
    return bool(value.any() if isinstance(value, np.ndarray) else value)
