"""Lengths beyond the positions of a model: refused where its class looks them up in a table, else noted."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture.model import Architecture
from tilewise.server.architecture.sizes import column
from tilewise.server.operators.numbers import Notes
from tilewise.server.workload import Workload


def check_length(arch: Architecture, workload: Workload) -> None:
    """Raises InvalidInput where a text tower's position table ends before the sequence does; rotary positions have no end."""
    asked = "context" if workload.phase == "decode" else "sequence"
    length = getattr(workload, asked)
    for stack in arch.stacks:
        ends = (np.asarray(stack.longest) > 0) & (np.asarray(length) > stack.longest)
        if stack.role == "text" and ends.any():
            longest, tokens = (int(size[ends].flat[0]) for size in np.broadcast_arrays(stack.longest, length, ends)[:2])
            message = f"{asked} {tokens} is longer than the position table of {arch.model_type}: it has {longest} rows, and its class fails beyond"
            raise InvalidInput(message, reason="INVALID_WORKLOAD", field=f"workload.{asked}", valid=longest)


def length_notes(arch: Architecture, workload: Workload, candidates: int = 1) -> list[Notes]:
    """A note on each candidate that runs longer than its config says it was made for."""
    asked = "context" if workload.phase == "decode" else "sequence"
    tables = [stack.longest for stack in arch.stacks if stack.role == "text"] or [0]
    columns = (column(size, candidates) for size in (getattr(workload, asked), arch.longest, tables[-1]))
    return [_notes(asked, *sizes) for sizes in zip(*columns, strict=True)]


def _notes(asked: str, length: int, longest: int, table: int) -> Notes:
    if 0 < table < length:
        return {
            f"{asked} {length} is longer than the {table} rows of the position table: answered as if it were longer": None
        }
    if not 0 < longest < length:
        return {}
    beyond = f"{asked} {length} is more than the {longest} positions of the config (max_position_embeddings)"
    return {f"{beyond}: transformers runs it (nothing ends there), engines refuse it unless told otherwise": None}
