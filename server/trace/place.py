"""Gives every recorded call its row: nothing is left out, and what has no name of its own is listed by its bytes."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

from tilewise.hwdb import packaged
from tilewise.server.operators.emitter import Emitter
from tilewise.server.trace import matrix
from tilewise.server.trace.kernels import Operand, kernels
from tilewise.server.trace.recorder import Call

UNKNOWN = ""  # the operator without a name in OPS: its kernels' times are known to their bytes alone


@cache
def _rules() -> dict[str, Any]:
    text = packaged.text("tilewise.server.trace", "placement.toml")
    return tomllib.loads(text)


def place(e: Emitter, name: str, call: Call) -> None:
    """Emit the row (a backward convolution: two) of one call."""
    if call.name in matrix.PRODUCTS:
        matrix.product(e, name, call)
    elif call.name in matrix.CONVOLUTIONS:
        matrix.convolution(e, name, call)
    elif matrix.is_attention(call.name):
        matrix.attention(e, name, call)
    else:
        _memory(e, name, call)


def _memory(e: Emitter, name: str, call: Call) -> None:
    op = operator(call)
    read, written = _traffic(op, call)
    rows, cols = _matrix_of(op, call)
    special = _evaluations(call)
    e.memory(
        name, op, rows, cols, read, written, direction=call.direction, special=special,
        kernels=kernels(call.name, call.ins, call.outs),
    )  # fmt: skip


def operator(call: Call) -> str:
    """The name in OPS, or UNKNOWN."""
    rules = _rules()
    named: str | None = rules["op"].get(call.base)
    if named is not None and not (call.base in ("max", "min") and call.pointwise):
        return named
    if call.base in rules["fill"]["names"]:
        return "fill"
    if call.base in rules["copy"]["names"]:
        return _copy(call)
    if call.pointwise or call.base in rules["elementwise"]["names"]:
        return _elementwise(call)
    if call.reduces or call.base in ("sum", "mean", "amax", "amin", "prod"):
        return "reduce" if _reduces_rows(call) else "reduce_columns"
    return UNKNOWN


def _copy(call: Call) -> str:
    source, target = call.arguments.get("src", call.ins[0]), call.outs[0]
    if source.dtype != target.dtype:
        return "cast"
    return "copy" if source.plain and target.plain else "transpose"


def _elementwise(call: Call) -> str:
    """A kernel over whole operands, unless one lies across or is broadcast."""
    elements = call.outs[0].numel if call.outs else 0
    operands = [x for x in call.ins if x.numel > 1 or elements <= 1]
    if any(x.numel < elements or not x.plain for x in operands):
        return "pointwise_strided"
    if call.base in ("add", "mul") and len(operands) == 2:
        return call.base
    return "pointwise"


def _reduces_rows(call: Call) -> bool:
    """Whether the last dimension is summed over."""
    dims = call.arguments.get("dim")
    dims = (dims,) if isinstance(dims, int) else dims
    last = len(call.ins[0].shape) - 1
    return not dims or last in [d % (last + 1) for d in dims]


def _traffic(op: str, call: Call) -> tuple[float, float]:
    """Bytes read and written; a gather reads what it takes, a scatter writes what it puts."""
    read, written = (float(sum(x.size_bytes for x in side)) for side in (call.ins, call.outs))
    if op == "fill":
        return 0.0, written
    if op in ("gather", "embedding"):
        return read - call.ins[0].size_bytes + written, written
    if op == "scatter_add" and call.base not in ("nll_loss_backward", "nll_loss2d_backward", "histc", "bincount"):
        put = max((x.size_bytes for x in call.ins[1:]), default=0)
        return read - call.ins[0].size_bytes + put, float(put)
    if call.base in ("copy", "nll_loss_forward", "nll_loss_backward"):
        read = _sparse_read(call, read)
    if call.base in ("slice_backward", "select_backward"):
        written += call.ins[0].size_bytes  # zeros first, then the part
    return read, written


def _sparse_read(call: Call, read: float) -> float:
    """A copy never reads its target; a loss reads one logit a token."""
    if call.base == "copy":
        return float(call.arguments["src"].size_bytes)
    whole = call.arguments["self"]
    return float(read - whole.size_bytes + whole.itemsize * whole.shape[0])


def _matrix_of(op: str, call: Call) -> tuple[int, int]:
    """The call as rows x cols: the last dimension is a row, unless a norm covers several or columns are summed."""
    largest: Operand | None = max((*call.ins, *call.outs), key=lambda x: x.numel, default=None)
    if largest is None:
        return 0, 0
    if op in ("gather", "embedding", "scatter_add", "fill", "cat") and call.outs:
        largest = call.outs[0] if op != "scatter_add" else max(call.ins[1:] or call.ins, key=lambda x: x.numel)
    cols = largest.shape[-1] if largest.shape else 1
    if op in ("layernorm", "layernorm_backward", "rmsnorm", "rmsnorm_backward"):
        cols = _normalized(call, cols)
    if op == "reduce_columns":
        cols = min(x.numel for x in call.outs)
    return largest.numel // max(cols, 1), cols


def _normalized(call: Call, cols: int) -> int:
    size = 1
    for length in call.arguments.get("normalized_shape", ()):
        size *= length
    return size if size > 1 else cols


def _evaluations(call: Call) -> float:
    """exp, tanh, rsqrt ... of one execution."""
    if call.base == "pow" and call.arguments.get("exponent") in (1, 2, 3, 1.0, 2.0, 3.0):
        return 0.0
    if call.base not in _rules()["special"]["names"] and call.base != "pow":
        return 0.0
    return float(max(x.numel for x in (*call.ins, *call.outs)))
