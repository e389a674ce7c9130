"""Tile and wave quantisation of a GEMM, and its loss to misaligned operands: simple rules without a kernel's name."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Kind, Layout, OperatorTable

# the scales of a block format lie apart from its values, whose bytes are quarters: 1.03 -> 1, 0.5625 -> 0.5
ELEMENT_BYTES = np.floor(4 * np.array([FORMATS[precision].bytes for precision in Precision])) / 4
SPLIT_K = 512.0  # elements of K that a split keeps at least: 8 stages of 64 (split-K pays from K/64 >= 8-16)


class Quantisation(Record):
    """Factors >= 1 on the time of the matrix units, and the tile count they come from; arrays of one value a row.

    padding: whole tiles over the output; wave: whole waves over the tiles, and the lower rate of small tiles;
    alignment: narrower loads
    """

    padding: Floats
    wave: Floats
    alignment: Floats
    tiles: Floats
    waves: Floats


def quantisation(table: OperatorTable, sku: Sku) -> Quantisation:
    """The best of a generation's tiles for each (grouped) GEMM row, as the vendor's heuristic would choose.

    tiles = ceil(m/tile_m) ceil(n/tile_n) groups; waves = ceil(tiles/SMs); split-K fills an unfinished first wave as far
    as K allows (NVIDIA matmul guide; CUTLASS efficient_gemm).
    """
    grouped = np.where(table.kind == Kind.GROUPED_GEMM.value, np.maximum(table.groups, 1.0), 1.0)
    m, n = np.maximum(table.m / grouped, 1.0), np.maximum(table.n, 1).astype(float)
    splits = np.maximum(np.floor(table.k / SPLIT_K), 1.0)
    candidates = [
        _tile(m, n, splits, np.maximum(table.groups, 1.0), sku.sm_count, *rule)
        for rule in assumptions()["tile"][sku.generation]
    ]
    best = candidates[0]
    for candidate in candidates[1:]:
        best = np.where(candidate[0] * candidate[1] < best[0] * best[1], candidate, best)
    padding, wave, tiles, waves = best
    return Quantisation(padding, wave, alignment(table), tiles, waves)


def _tile(
    m: Floats, n: Floats, splits: Floats, groups: Floats, sms: int, tile_m: int, tile_n: int, rate: float
) -> Floats:
    """(padding, wave, tiles, waves) of one tile shape whose matrix rate is `rate` of the best tile's."""
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n) * groups
    padding = tiles * (tile_m * tile_n) / (m * n * groups)
    pieces = tiles * np.minimum(np.maximum(np.floor(sms / tiles), 1.0), splits)
    waves = np.ceil(pieces / sms)
    return np.array([padding, waves * sms / (pieces * rate), tiles, waves])


def alignment(table: OperatorTable) -> Floats:
    """Factor by which the matrix units slow down where a leading dimension is no multiple of 16 bytes."""
    element = ELEMENT_BYTES[table.precision]
    first = np.where(table.layout == Layout.WEIGHT_GRADIENT.value, table.m.astype(np.int64), table.k)
    second = np.where(table.layout == Layout.FORWARD.value, table.k, table.n)
    bits = (first * element).astype(np.int64) | (second * element).astype(np.int64)
    bits |= (table.n * table.output_bytes).astype(np.int64)
    factors = assumptions()["alignment"]
    at_least_4 = np.where(bits % 16 == 0, 1.0, factors["at_4_bytes"])
    return np.where(bits % 4 == 0, at_least_4, factors["at_2_bytes"])
