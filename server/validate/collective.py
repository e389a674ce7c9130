"""Tables of collectives, timed as nccl-tests does."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.table import OP_CODES, Floats, Kind
from tilewise.server.operators.emitter import Emitter
from tilewise.server.validate import rules
from tilewise.server.validate.asked import Asked, emitted, sizes
from tilewise.server.validate.sheet import Sheet

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def ask(sheet: Sheet, found: list[str]) -> Asked:
    """[collective]: message size and ranks; where only the bus bandwidth is told, the time follows from it."""
    op, ranks, size = sheet.words("op", "op"), sheet.number("ranks"), sheet.number("bytes")
    rules.explain(found, ~np.isin(op, COLLECTIVES), "collective not known here")
    custom = np.char.find(sheet.text("impl"), "custom") >= 0
    rules.explain(found, custom, "an engine's own all-reduce, not NCCL's")
    rate = sheet.number("busbw_gbps")
    derived = _bus_bytes(op, ranks) * size / (1e9 * np.where(rate > 0, rate, np.nan))
    rows = rules.usable(found)
    codes = np.array([OP_CODES.get(name, 0) for name in op.tolist()])

    def emit(e: Emitter) -> None:
        message, here = sizes(size[rows]), sizes(ranks[rows])
        e.add("collective", "forward", Kind.COLLECTIVE, op=sizes(codes[rows]), message_bytes=message, ranks=here, bytes_read=message,
              bytes_written=message)  # fmt: skip

    each = np.array([f"{count:g}" for count in ranks.tolist()])
    groups = {"operator": op, "ranks": each, "software": sheet.text("impl")}
    return Asked.of(sheet, found, [emitted(rows, emit)] if len(rows) else [], groups, derived_s=derived)


def _bus_bytes(op: np.ndarray, ranks: Floats) -> Floats:
    """Bus bytes per byte of a message (nccl-tests, doc/PERFORMANCE.md)."""
    share = np.where(op == "send_recv", 1.0, (ranks - 1) / np.maximum(ranks, 1))
    doubled: Floats = np.where(op == "all_reduce", 2 * share, share)
    return doubled
