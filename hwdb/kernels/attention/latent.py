"""Multi-head latent attention by others' measurements: what one row of their tables is.

A row is the attention kernel alone, with the write of the new tokens to the cache and the rotation that engines fuse with
it; the projections around it (down, up, absorption) are products of their own (aiconfigurator: "now only contains MQA
part"). `num_heads` are one rank's, whatever the tensor parallelism. Prefill is a row of expanded heads
(head_dim 128 + 64, head_dim_v 128, as many key-value heads), decode one of absorbed heads, which share a latent of
512 + 64 numbers a token (head_dim 576, head_dim_v 512, one key-value head).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels.software import Software, facts
from tilewise.hwdb.table import Floats, Ints, OperatorTable, Phase


def columns(heads: Floats | Ints, decode: NDArray[np.bool_]) -> dict[str, Any]:
    """heads, kv_heads, head_dim and head_dim_v of rows of DeepSeek's widths."""
    size = facts()["latent"]
    return {
        "heads": heads,
        "kv_heads": np.where(decode, 1, heads),
        "head_dim": np.where(decode, size["kv_rank"] + size["rope_dim"], size["nope_dim"] + size["rope_dim"]),
        "head_dim_v": np.where(decode, size["kv_rank"], size["head_dim_v"]),
    }


def is_latent(table: OperatorTable) -> NDArray[np.bool_]:
    """Rows whose values are narrower than their keys: no other attention has them."""
    narrower: NDArray[np.bool_] = table.head_dim != table.head_dim_v
    return narrower


def as_run(table: OperatorTable, software: Software, which: Ints) -> OperatorTable:
    """The rows as their software runs them: FlashAttention 3 under SGLang absorbs the heads of a prefill too."""
    word = facts()["latent"]["absorbs"]
    absorbs = np.array([one.latent and word in one.kernel for one in software.origins], bool)
    rows = absorbs[which] & (table.phase == Phase.FORWARD.value) & (table.kv_heads > 1)
    if not rows.any():
        return table
    absorbed = columns(table.heads, np.ones(len(table), bool))
    kept = {
        name: np.where(rows, absorbed[name], getattr(table, name)) for name in ("kv_heads", "head_dim", "head_dim_v")
    }
    return replace(table, **kept)
