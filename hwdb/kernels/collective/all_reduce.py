"""A serving engine's own all-reduce between the GPUs of one board, by its published law (all_reduce.toml).

A collective's row names it in `library`: 1 + the engine's place in ENGINES.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tilewise.hwdb import packaged
from tilewise.hwdb.kernels.software import engines
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OperatorTable
from tilewise.hwdb.times import Times, Trust, Wall

ENGINES = tuple(engines())


def codes(sku: str, engine: str) -> dict[int, int]:
    """The `library` code by number of GPUs; empty where nobody published the engine's all-reduce on this SKU."""
    return {int(ranks): 1 + ENGINES.index(engine) for ranks in facts().get(sku, {}).get(engine, {})}


def predict(table: OperatorTable, sku: Sku) -> Times:
    """Times of all-reduces by the engine that `library` names; bursts and sustained work alike, since no matrix unit runs.

    Raises KeyError for a number of GPUs that `codes` does not have.
    """
    time, margin, software = np.zeros(len(table)), np.zeros(len(table)), np.zeros(len(table), np.int64)
    names: list[str] = []
    for at in range(len(table)):
        engine, ranks = ENGINES[int(table.library[at]) - 1], str(int(table.ranks[at]))
        law: Mapping[str, Any] = facts()[sku.name][engine][ranks]
        piece = int(np.searchsorted(law["from_bytes"], table.message_bytes[at], side="right")) - 1
        time[at] = law["seconds"][piece] + law["seconds_per_byte"][piece] * table.message_bytes[at]
        margin[at], software[at] = law["margin"], _place(names, law["software"])
    none = np.zeros(len(table))
    return Times(
        time_s=time, low_s=time * np.exp(-margin), high_s=time * np.exp(margin), compute_s=none, memory_s=none,
        special_s=none, launch_s=none, padding_s=none, wave_s=none, alignment_s=none,
        wall=np.full(len(table), int(Wall.COMMUNICATION)), trust=np.full(len(table), int(Trust.PUBLISHED)),
        distance=none, kernel=software, tiles=none, waves=none, refusal=np.full(len(table), -1),
        kernel_names=tuple(names),
    )  # fmt: skip


def _place(names: list[str], name: str) -> int:
    if name not in names:
        names.append(name)
    return names.index(name)


@cache
def facts() -> dict[str, Any]:
    """all_reduce.toml: SKU -> engine -> number of GPUs -> law."""
    return packaged.toml("tilewise.hwdb.kernels.collective", "all_reduce.toml")
