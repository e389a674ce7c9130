"""Windows, which were in no table that was fitted: the row without one that has the same work.

A decode reads the keys in reach and a tile more. A forward of s tokens that see w keys each has the pairs, tokens and
traffic of s / 2w causal sequences of 2w tokens. A window that cuts nothing is none.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.table import OperatorTable, Phase

BEYOND = 128  # keys beyond the window that the tiles at its edges take in

# What is added to the half-width of log(time): 90 % of the windowed rows of aiconfigurator-core whose shape's hash is even
# then lie inside, on H200 and B200; no time was fitted to them.
UNSURE = 0.25


def cuts(table: OperatorTable) -> NDArray[np.bool_]:
    """Rows whose window hides keys."""
    hidden: NDArray[np.bool_] = (table.window > 0) & (table.window < table.seq_kv)
    return hidden


def without(table: OperatorTable) -> OperatorTable:
    """The rows without windows that have the same work; others, and forwards that are not square, as they stand."""
    hidden, decode = cuts(table), table.phase == Phase.DECODE.value
    square = hidden & ~decode & (table.seq_q == table.seq_kv)
    reach = table.window + BEYOND
    whole = np.where(square, 2 * reach, np.where(decode & hidden, reach, table.seq_kv))
    length = np.minimum(table.seq_kv, whole)
    pieces = np.where(square, table.seq_q / length, 1.0)
    return replace(
        table,
        batch=np.round(table.batch * pieces).astype(np.int64),
        seq_q=np.where(square, length, table.seq_q),
        seq_kv=length,
        causal=np.where(square, 1, table.causal),
        window=np.where(hidden & ~decode & ~square, table.window, 0),
    )
