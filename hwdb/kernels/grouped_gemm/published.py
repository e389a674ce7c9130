"""Experts by others' measurements: a serving engine's fused layer (gate and up, activation, down) as one row.

A row with op `fused_moe` is such a layer: m rows routed to this rank, n the experts' width on this rank, k hidden,
groups experts that it holds, heads of kv_heads experts chosen by each of batch tokens, skew of a power law over them.
Grouped products by themselves were published for no GPU: they are carried over from a sibling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels import clock, transfer
from tilewise.hwdb.kernels.learning import answers, residual
from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.learning.residual import Points, Work
from tilewise.hwdb.kernels.software import Software
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, Floats, Ints, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, merge

FUSED = OP_CODES["fused_moe"]
TILE = 128  # rows that an expert's share is padded to
LIMIT = 4.0  # log: engines route up to all rows to the rank that was timed, so up to 64 times its mean share


def fused(number: Callable[[str, float], Floats], distribution: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Columns of fused layers of experts on one of moe_ep x moe_tp ranks.

    number: a table's column by its name and by what an empty cell means; distribution: "balanced" or "power_law_1.2"
    """
    tokens, hidden, experts = (number(name, np.nan) for name in ("num_tokens", "hidden", "num_experts"))
    width, chosen, ranks = number("moe_inter", np.nan), number("topk", np.nan), number("moe_ep", 1.0)
    skew = [float(word.rpartition("_")[2]) if word.startswith("power_law") else 0.0 for word in distribution]
    return {
        "op": np.full(len(tokens), FUSED), "batch": tokens, "k": hidden, "n": width / number("moe_tp", 1.0),
        "m": tokens * chosen / ranks, "groups": experts / ranks, "heads": chosen, "kv_heads": experts,
        "skew": np.array(skew),
    }  # fmt: skip


def worker(table: OperatorTable, chip: Chip, which: Ints, software: Software) -> Work:
    """Walls of whole row tiles of every expert that is hit, and of the matrices of those experts."""
    tokens, width, hidden = (np.maximum(getattr(table, name), 1).astype(float) for name in ("batch", "n", "k"))
    experts, chosen_by = np.maximum(table.kv_heads, 1).astype(float), np.maximum(table.heads, 1).astype(float)
    mine, routed = np.maximum(table.groups, 1e-3), np.maximum(table.m, 1e-3)
    ranks = experts / mine
    hit, most, row_tiles = _crowding(tokens, chosen_by, experts, table.skew)
    hit, row_tiles = hit / ranks, np.maximum(row_tiles, hit) / ranks
    matrices = np.array([2.0 if "nongated" in kernel else 3.0 for kernel in software.column("kernel").tolist()])[which]
    weight = software.column("weight_bytes")[which]
    one = hidden * width * matrices
    compute = 2 * row_tiles * TILE * one / chip.at(software.precision[which])
    moved = hit * one * weight + routed * 2 * (2 * hidden + matrices * width)
    tiles = row_tiles * np.ceil(width * (matrices - 1) / TILE)
    waves, log = tiles / chip.sms, np.log2
    useful = 2 * routed * one / chip.at(software.precision[which])
    columns = [
        log(tokens), log(hidden), log(width), log(chosen_by), log(experts), log(mine), log(ranks), log(routed), log(hit),
        log(np.maximum(most, 1e-3)), log(routed / mine), table.skew, log(useful * 1e6), log(waves),
        np.minimum(np.ceil(waves) / waves, 8), log(row_tiles * TILE / routed), width % TILE > 0, width % 256 > 0,
        table.skew == 0, matrices, weight,
    ]  # fmt: skip
    place = np.stack([log(tokens * chosen_by), log(hidden * width) / 2, log(mine + 1)], 1) / 2
    most_rows = busiest(mine, experts, table.skew)
    added = [log(most_rows), log(compute * most_rows * 1e6), log(np.minimum(ranks, chosen_by))]
    return Work(compute, moved / chip.hbm, columns, place, tiles, np.ceil(waves), added)


def busiest(mine: Floats, experts: Floats, skew: Floats) -> Floats:
    """Rows of the rank whose experts are the most chosen, over the mean of ranks: published tables time that rank."""
    found = np.ones(len(mine))
    for count, held, alpha in sorted(set(zip(experts.tolist(), mine.tolist(), skew.tolist(), strict=True))):
        share = (np.arange(int(count)) + 1.0) ** -alpha
        rows = (experts == count) & (mine == held) & (skew == alpha)
        found[rows] = share[: max(1, round(held))].sum() / share.sum() * count / max(held, 1.0)
    return found


def _crowding(tokens: Floats, chosen_by: Floats, experts: Floats, skew: Floats) -> tuple[Floats, Floats, Floats]:
    """Expected experts hit, rows of the fullest one, and row tiles, where an expert's share falls as rank^-skew."""
    found = np.zeros((3, len(tokens)))
    for count, alpha in sorted(set(zip(experts.tolist(), skew.tolist(), strict=True))):
        rows = np.flatnonzero((experts == count) & (skew == alpha))
        share = (np.arange(int(count)) + 1.0) ** -alpha
        odds: NDArray[np.float64] = np.minimum(chosen_by[rows, None] * share / share.sum(), 1.0)
        sizes, there = tokens[rows, None] * odds, 1 - (1 - odds) ** tokens[rows, None]
        found[:, rows] = there.sum(1), sizes.max(1), (np.ceil(sizes / TILE) * there).sum(1)
    hit, most, row_tiles = found
    return hit, most, row_tiles


def fit(points: Points) -> dict[str, Any]:
    """The model of published fused layers."""
    return {"law": "published.grouped_gemm", **residual.fit(points, worker, limit=LIMIT)}


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of fused layers by their software; of grouped products carried over."""
    fused = (table.op == FUSED) & ("software" in model)
    known, other = np.flatnonzero(fused), np.flatnonzero(~fused)
    parts = [(known, _fused(table.select(known), model, sku, state))] if len(known) else []
    if len(other):
        parts.append((other, transfer.predict(table.select(other), str(model["sibling"]), sku, state)))
    return merge(len(table), parts)


def _fused(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    software = residual.OPEN(model).software
    which = np.maximum(software.chosen(table.library, table.precision), 0)
    found, work, floor = residual.answer(table, which, model, sku, worker)
    trust = np.full(len(table), int(Trust.PUBLISHED))
    times = answers.times(found, np.zeros(len(table)), work, floor, trust, which, model)
    return clock.settled(table, times, sku, state, software.precision[which])
