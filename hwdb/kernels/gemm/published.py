"""GEMM by others' measurements: the best of a generation's tiles on the real SM count, bytes, and a learned rest.

Published tables are forward products with sizes that tiles divide. A gradient is answered as the forward product of its
own sizes, an odd leading dimension by the roofline's factor; both are said to rest on less (trust `datasheet`) and have
wider intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels import clock, roofline, tiles, transfer
from tilewise.hwdb.kernels.gemm import choice as gemm_choice
from tilewise.hwdb.kernels.learning import answers, regression, residual
from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.learning.residual import Points, Work
from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.kernels.software import Software
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints, Layout, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, merge

TILES = (
    (256, 256),
    (256, 128),
    (128, 256),
    (128, 128),
    (64, 256),
    (256, 64),
    (128, 64),
    (64, 128),
    (64, 64),
    (32, 128),
    (16, 128),
)
FULL = 20.0  # harmonic size of a tile, in rows, at which its operands' loads cost as much as its products
SPLIT = 512.0  # elements of k that a piece keeps at least
WAVE_S = 5e-7  # start and end of a block
ALIGNED_N, ALIGNED_ROW = (
    128,
    512,
)  # elements of n, bytes of a row of k: more is asked for nowhere (AMD: 512-byte strides)


def worker(table: OperatorTable, chip: Chip, which: Ints, software: Software) -> Work:
    """Walls, and how every tile fits the shape."""
    m, n, k = np.maximum(table.m, 1.0), np.maximum(table.n, 1).astype(float), np.maximum(table.k, 1).astype(float)
    steps = np.array([software.steps(one) for one in chip.generations])[chip.place, which]
    m, groups = padded(m, steps), np.maximum(table.groups, 1.0)
    precision = software.precision[which]
    element = gemm_choice.ELEMENT[precision].astype(float)
    cast = software.column("quantises")[which]
    rate = chip.at(precision) / chip.sms
    compute, splits = np.full(len(m), np.inf), np.maximum(np.floor(k / SPLIT), 1)
    count, waves, columns = np.ones(len(m)), np.ones(len(m)), []
    for tile_m, tile_n in TILES:
        high = np.where(steps > 0, np.ceil(m / tile_m), np.maximum(m / tile_m, 1.0))
        here = high * np.ceil(n / tile_n) * groups
        pieces = np.minimum(np.maximum(np.floor(chip.sms / here), 1), splits)
        rounds = np.ceil(here * pieces / chip.sms)
        harmonic = tile_m * tile_n / (tile_m + tile_n)
        time = rounds * (2 * tile_m * tile_n * k / pieces / (rate * harmonic / (harmonic + FULL)) + WAVE_S)
        better = time < compute
        for found, new in ((compute, time), (count, here), (waves, rounds)):
            np.copyto(found, new, where=better)
        columns += [
            np.minimum(np.ceil(here / chip.sms) * chip.sms / here, 16),
            np.log2(np.minimum(np.maximum(here / chip.sms, 1 / 16), 64)),
        ]
    moved = groups * ((m * k + n * k) * element + 2 * m * n) + np.where(cast, m * k * (2 + element), 0.0)
    memory = moved / chip.hbm
    sizes = [np.log2(m), np.log2(n), np.log2(k), np.log2(groups), np.minimum(m / 64, 4)]
    formats = [precision == code for code in sorted(set(software.precision.tolist()))]
    place = np.array(sizes[:3]).T
    sides = ((n, ALIGNED_N), (k * element, ALIGNED_ROW))
    aligned = [np.log2(np.gcd(np.maximum(size, 1).astype(np.int64), most)) for size, most in sides]
    return Work(compute, memory, [*sizes, *columns, *formats], place, count, waves, aligned)


def padded(m: Floats, steps: Ints) -> Floats:
    """Rows that a kernel runs for m: the next power of two up to its step, then whole steps; m where it has none."""
    whole = np.maximum(steps, 1)
    up = np.where(m <= steps, 2.0 ** np.ceil(np.log2(m)), np.ceil(m / whole) * whole)
    return np.where(steps > 0, up, m)


def fit(points: Points) -> dict[str, Any]:
    """The model of published products."""
    return {"law": "published.gemm", **residual.fit(points, worker)}


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of GEMM rows; of a format that nobody published a time for, its kin's carried over, else the roofline's."""
    software = residual.OPEN(model).software.chosen(table.library, table.precision)
    known, other = np.flatnonzero(software >= 0), np.flatnonzero(software < 0)
    parts = [(known, _known(table.select(known), software[known], model, sku, state))] if len(known) else []
    if len(other):
        kin = str(model.get("kin", ""))
        parts.append((other, transfer.predict(table.select(other), kin, sku, state, Trust.PUBLISHED)))
    found = merge(len(table), parts)
    return answers.or_else(table, found, lambda rows: roofline.predict(rows, {}, sku, state))


def _known(table: OperatorTable, software: Ints, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    opened = residual.OPEN(model).software
    found, work, floor = residual.answer(table, software, model, sku, worker)
    # what an odd row of the output costs on AMD is in the tables of its tuners
    learned = replace(table, output_bytes=np.zeros(len(table))) if sku.vendor == "amd" else table
    found, between = _narrow(table, software, model, sku, found)
    alone = (table.library == 0) & opened.column("quantises")[software]
    factor = tiles.alignment(learned) * np.where(alone, 1 - _cast_share(table, found, sku), 1.0)
    odd, turned = (tiles.alignment(learned) > 1) | between, table.layout != Layout.FORWARD.value
    widened = (
        np.where(alone, transfer.error("cast", sku), 0.0) + np.where(turned, transfer.error("layout", sku), 0.0)
        + np.where(odd & ~between, np.log(assumptions()["alignment"]["widening"]), 0.0)
    )  # fmt: skip
    uneven = (table.m.astype(np.int64) & (table.m.astype(np.int64) - 1)) > 0
    stepped = opened.steps(sku.generation)[software] > 1
    more = np.where(stepped, BETWEEN_STEPS, BETWEEN) * uneven
    widened = widened + more * np.log(found.high_s / found.time_s)
    trust = np.where(odd | turned, Trust.DATASHEET, Trust.PUBLISHED)
    answered = regression.Answer(found.time_s * factor, found.low_s * factor, found.high_s * factor, found.distance)
    times = answers.times(answered, widened, work, floor, trust, software, model)
    return clock.settled(table, times, sku, state, opened.precision[software])


def _narrow(
    table: OperatorTable, software: Ints, model: Mapping[str, Any], sku: Sku, found: regression.Answer
) -> tuple[regression.Answer, NDArray[np.bool_]]:
    """`found`, but halfway to the product WIDER columns wide where fewer were never timed, and which rows these are.

    AMD's tables have no n below 16, and what they learned of odd rows of the output comes from n of 100 and 200. A kernel for WIDER
    columns can run fewer: the time lies between its own and the one with that cost, and the distance is to WIDER columns.
    """
    rows = np.flatnonzero((sku.vendor == "amd") & (table.n < WIDER) & (table.n % NARROWEST > 0))
    mine = np.zeros(len(table), bool)
    if not len(rows):
        return found, mine
    mine[rows] = True
    some = table.select(rows)
    wide, _, _ = residual.answer(replace(some, n=np.full(len(rows), WIDER)), software[rows], model, sku, worker)
    sides = np.stack([found.time_s[rows], wide.time_s])
    bounds = (
        np.sqrt(sides.prod(axis=0)), np.minimum(found.low_s[rows], wide.low_s), np.maximum(found.high_s[rows], wide.high_s),
        np.maximum(found.distance[rows], np.log2(WIDER / np.maximum(some.n, 1))),
    )  # fmt: skip
    whole = [values.copy() for values in (found.time_s, found.low_s, found.high_s, found.distance)]
    for values, new in zip(whole, bounds, strict=True):
        values[rows] = new
    return regression.Answer(*whole), mine


def _cast_share(table: OperatorTable, found: regression.Answer, sku: Sku) -> Floats:
    """Share of a published time that is the cast of the activations: a model's table has the cast as a row of its own."""
    moved = table.m * table.k * 3.0  # read in 16 bit, written in 8
    share: Floats = np.clip((CAST_S + moved / (0.85 * sku.hbm_bytes_per_s)) / found.time_s, 0.0, 0.5)
    return share


# share by which intervals are wider where m is no power of two: the sampled shapes had none
BETWEEN, BETWEEN_STEPS = 0.3, 0.7  # the second: of kernels that pad m to steps, which may be others for some n and k
NARROWEST, WIDER = 16, 64  # columns: the fewest that tables of AMD have, the fewest that they have plenty of
CAST_S = 1.9e-6  # the smallest cast (hwdb/roofline.toml, memory_floor_s)
