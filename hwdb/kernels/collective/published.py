"""Collectives by others' measurements: a curve over message size for every operation and number of GPUs of one board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels import transfer
from tilewise.hwdb.kernels.collective.fitted import OPERATION_OF, OPERATIONS, RANKS_MAX, RANKS_WIDEN
from tilewise.hwdb.kernels.rates import rates
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, Wall, merge

COVERAGE = 0.9
OCTAVES = (8, 34)  # log2 of message bytes that curves span
MARGIN_MIN = 0.05  # of log(time): libraries of one year differ so much on one machine


def fit(op: Ints, ranks: Ints, size: Floats, measured_s: Floats) -> dict[str, NDArray[Any]]:
    """curve: log seconds at every octave of message bytes, shape (operations, ranks, octaves), NaN where nothing was

    published; ranks: the numbers of GPUs; margin: half-width of log(time), (operations, ranks). op: index into OPERATIONS.
    """
    counts = np.unique(ranks)
    knots = np.arange(OCTAVES[0], OCTAVES[1] + 1)
    curve = np.full((len(OPERATIONS), len(counts), len(knots)), np.nan)
    margin = np.full(curve.shape[:2], np.nan)
    for at in np.unique(op):
        for rank in np.unique(ranks[op == at]):
            rows = (op == at) & (ranks == rank)
            place = int(at), int(np.searchsorted(counts, rank))
            curve[place], margin[place] = _curve(np.log2(size[rows]), np.log(measured_s[rows]), knots)
    return {"curve": curve.astype(np.float32), "ranks": counts.astype(float), "margin": margin}


def _curve(octave: Floats, log_s: Floats, knots: NDArray[Any]) -> tuple[Floats, float]:
    """Medians at every size, joined by lines, flat below and in proportion above; and how far points lie off their neighbours."""
    sizes = np.unique(octave)
    middle = np.array([np.median(log_s[octave == one]) for one in sizes])
    off = [log_s - np.interp(octave, sizes, middle)]
    if len(sizes) > 4:
        inner = np.arange(1, len(sizes) - 1)
        off.append([middle[i] - np.interp(sizes[i], sizes[[i - 1, i + 1]], middle[[i - 1, i + 1]]) for i in inner])
    beyond = np.maximum(knots - sizes[-1], 0) * np.log(2)
    margin = float(np.quantile(np.abs(np.concatenate(off)), COVERAGE))
    return np.interp(knots, sizes, middle) + beyond, max(margin, MARGIN_MIN)


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of collectives of one board; of an operation that nobody published, or on more GPUs, the roofline's."""
    operation = OPERATION_OF[table.op]
    measured = np.isfinite(model["curve"][:, :, 0])
    known = (table.ranks <= 1) | (measured.any(axis=1)[operation] & (table.ranks <= RANKS_MAX))
    rows, rest = np.flatnonzero(known), np.flatnonzero(~known)
    parts = [(rows, _known(table.select(rows), model, sku, state))] if len(rows) else []
    if len(rest):
        parts.append((rest, transfer.predict(table.select(rest), "", sku, state)))
    return merge(len(table), parts)


def _known(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """The curve of the nearest number of GPUs, by the bus bytes and hops of the number asked for."""
    operation, ranks = OPERATION_OF[table.op], np.maximum(table.ranks, 2).astype(float)
    nearest = _nearest(model, operation, ranks)
    there = model["ranks"][nearest]
    octave = np.log2(np.maximum(table.message_bytes, 1.0)) - OCTAVES[0]
    low = np.clip(np.floor(octave), 0, OCTAVES[1] - OCTAVES[0] - 1).astype(np.int64)
    curves = model["curve"][operation, nearest].astype(float)
    at = np.arange(len(low))
    left, right = curves[at, low], curves[at, low + 1]
    log_s = left + np.clip(octave - low, 0, None) * (right - left)
    alone = table.ranks <= 1
    hops = rates(sku, state).hop_s * (ranks - there)
    time = np.where(alone, 0.0, np.maximum(np.exp(log_s) + hops, 0.5 * np.exp(log_s)))
    margin = np.where(alone, 0.0, model["margin"][operation, nearest] + RANKS_WIDEN * np.abs(np.log2(ranks / there)))
    none = np.zeros(len(table))
    return Times(
        time_s=time, low_s=time * np.exp(-margin), high_s=time * np.exp(margin), compute_s=none, memory_s=none,
        special_s=none, launch_s=np.where(alone, 0.0, np.exp(curves[:, 0])), padding_s=none, wave_s=none, alignment_s=none,
        wall=np.full(len(table), int(Wall.COMMUNICATION)), trust=np.full(len(table), int(Trust.PUBLISHED)),
        distance=np.where(alone, 0.0, np.abs(np.log2(ranks / there))), kernel=np.full(len(table), -1), tiles=none,
        waves=none, refusal=np.full(len(table), -1),
    )  # fmt: skip


def _nearest(model: Mapping[str, Any], operation: Ints, ranks: Floats) -> Ints:
    """Index of the nearest number of GPUs with a curve for each row's operation."""
    gap = np.abs(np.log2(ranks[:, None] / model["ranks"][None]))
    gap = np.where(np.isfinite(model["curve"][operation, :, 0]), gap, np.inf)
    nearest: Ints = gap.argmin(axis=1)
    return nearest
