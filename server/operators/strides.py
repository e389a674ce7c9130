"""Row lengths that a GPU generation reads slowly: a hint to pad the leading dimension, never to change the shape."""

from __future__ import annotations

from collections.abc import Mapping

from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.sku import Sku
from tilewise.server.architecture.model import Architecture
from tilewise.server.architecture.sizes import column
from tilewise.server.operators.numbers import Notes
from tilewise.server.operators.sharding import linears
from tilewise.server.workload import Workload

ELEMENT = 2  # bytes of a 16-bit operand, for which the rule was written


def stride_notes(arch: Architecture, workload: Workload, sku: Sku, candidates: int = 1) -> list[Notes]:
    """A note on each candidate that names the widths whose rows are a multiple of the generation's stride, if any are."""
    rule = assumptions()["stride"].get(sku.generation)
    columns = [column(linear.inputs, candidates) for linear, _, _ in linears(arch)] if rule else []
    if not columns or workload.quantized:
        return [{} for _ in range(candidates)]
    return [_stride_note(set(widths), rule, sku.generation) for widths in zip(*columns, strict=True)]


def _stride_note(widths: set[int], rule: Mapping[str, int], generation: str) -> Notes:
    slow = sorted(width for width in widths if width * ELEMENT % rule["bytes"] == 0)
    if not slow:
        return {}
    where = f"rows of {', '.join(map(str, slow))} elements are a multiple of {rule['bytes']} bytes"
    hint = f"try a leading dimension {rule['pad']} longer (padding, the shape stays); not part of the time"
    return {f"{where}: on {generation} they may meet on few memory channels; {hint}": None}
