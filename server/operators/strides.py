"""Row lengths that a GPU generation reads slowly: a hint to pad the leading dimension, never to change the shape."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.sku import Sku
from tilewise.server.architecture.model import Architecture
from tilewise.server.operators.sharding import linears
from tilewise.server.workload import Workload

ELEMENT = 2  # bytes of a 16-bit operand, for which the rule was written


def stride_notes(arch: Architecture, workload: Workload, sku: Sku) -> tuple[str, ...]:
    """One note that names the widths whose rows are a multiple of the generation's stride; none where it has no such rule."""
    rule = assumptions()["stride"].get(sku.generation)
    if rule is None or workload.quantized:
        return ()
    widths = {int(np.max(linear.inputs)) for linear, _, _ in linears(arch)}
    slow = sorted(width for width in widths if width * ELEMENT % rule["bytes"] == 0)
    if not slow:
        return ()
    where = f"rows of {', '.join(map(str, slow))} elements are a multiple of {rule['bytes']} bytes"
    hint = f"try a leading dimension {rule['pad']} longer (padding, the shape stays); not part of the time"
    return (f"{where}: on {sku.generation} they may meet on few memory channels; {hint}",)
