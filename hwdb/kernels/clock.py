"""Published kernel times are bursts. What long runs take follows from the sustained rates that were published apart."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.kernels.rates import rates
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Ints, OperatorTable
from tilewise.hwdb.times import State, Times

UNSURE = (
    0.5  # of the stretch: sustained rates of one GPU differ so much by duration and software (MI300X bf16: 668 to 765)
)


def settled(table: OperatorTable, times: Times, sku: Sku, state: State, precision: Ints | None = None) -> Times:
    """Times in a state. Sustained, the share of the matrix units is stretched by burst over sustained GEMM rate of the SKU."""
    if state is State.BURST:
        return times
    format_ = table.precision if precision is None else precision
    ratio = (rates(sku, State.BURST).compute / rates(sku, State.SUSTAINED).compute)[format_]
    matrix = times.compute_s / np.maximum(times.compute_s + times.memory_s, 1e-12)
    extra = matrix * (ratio - 1)
    stretch, unsure = 1 + extra, UNSURE * extra
    return replace(
        times,
        time_s=times.time_s * stretch,
        low_s=times.low_s * (stretch - unsure),
        high_s=times.high_s * (stretch + unsure),
        compute_s=times.compute_s * stretch,
    )
