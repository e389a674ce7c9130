"""FLOPs of a step by the conventions people compare: causal, full attention, and the PaLM formula."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.table import Floats, Kind, OperatorTable
from tilewise.server.architecture.model import Architecture, Attention, Size
from tilewise.server.workload import Workload

WRITTEN_OUT = ("scores", "weighted_values")  # attention's products where no one kernel does both


def by_shape(table: OperatorTable, values: Floats) -> Floats:
    """Sum a column over each candidate's rows, repeats included; shape (shapes,).

    Row after row, so that a candidate has the same sum, to the bit, alone and among others.
    """
    return np.bincount(table.shape, table.count * values, table.shapes).astype(float, copy=False)


def causal_flops(table: OperatorTable) -> Floats:
    """Model FLOPs; shape (shapes,)."""
    return by_shape(table, table.flops)


def full_flops(table: OperatorTable) -> Floats:
    """As causal_flops, but attention over every query-key pair, windows ignored (torch's FlopCounterMode)."""
    attention = table.kind == Kind.ATTENTION.value
    per_pair = 2.0 * table.batch * table.heads * (table.head_dim + table.head_dim_v)
    full = per_pair * table.seq_q * table.seq_kv * np.where(table.phase == 1, 2, 1)
    written = np.array([label.name in WRITTEN_OUT for label in table.labels], bool)[table.label]
    flops = np.where(written & (table.flops > 0), table.executed_flops, table.flops)
    return by_shape(table, np.where(attention & (table.flops > 0), full, flops))


def palm_flops(arch: Architecture, workload: Workload, active_parameters: Size) -> Floats:
    """(6 N + 12 L H Q T) a token in training, a third of it in a forward; N counts what a token visits (PaLM, B)."""
    length = workload.context if workload.phase == "decode" else workload.sequence
    attention: Size = 0
    for block in arch.stacks[-1].blocks:
        for mixer in block.mixers:
            if isinstance(mixer, Attention):
                attention = attention + block.count * mixer.heads * mixer.head_dim
    per_token = 2.0 * np.asarray(active_parameters) + 4.0 * np.asarray(attention) * length
    passes = 3 if workload.phase == "train" else 1
    return np.atleast_1d(passes * per_token * workload.tokens / workload.tensor_parallel)
