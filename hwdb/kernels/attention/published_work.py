"""What an attention kernel has to do: walls of matrix units, exponentials and traffic, blocks over the SMs."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels.attention import decode as decode_kernel
from tilewise.hwdb.kernels.attention import latent
from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.learning.residual import Work
from tilewise.hwdb.kernels.software import Software
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints, OperatorTable, Phase

QUERIES = 128  # rows of a tile over the queries: 128 on Hopper, a pair of 128 on Blackwell
HEADS = 64  # query heads of a key-value head that a decode's tile takes: fewer take as long
KEYS = 512  # cached keys that a split of a decode keeps at least
WIDTH_CELLS = 5  # cells of distance per octave of head width: between 64, 128 and 256 other kernels run
OUTPUT = 2.0  # bytes of an element of queries and results
CACHES = 2.0  # caches of that many times the L2 find nothing of themselves there when they are read again
REREAD = 1 / 3  # of the memory's time for a key that another query head's block reads again, from L2


class Sizes(Record):
    """Of each row; arrays of shape (rows,). reach: keys that a query sees; masked, alone: see decode.py."""

    decode: NDArray[np.bool_]
    masked: NDArray[np.bool_]
    alone: NDArray[np.bool_]
    batch: Floats
    heads: Floats
    kv: Floats
    queries: Floats
    keys: Floats
    reach: Floats
    widths: Floats
    blocks: Floats

    @classmethod
    def of(cls, table: OperatorTable, chip: Chip, software: Software, which: Ints) -> Self:
        """The sizes of rows as their software runs them."""
        decode = table.phase == Phase.DECODE.value
        masked = decode_kernel.masked(table, chip, software, which)
        columns = (table.batch, table.heads, table.kv_heads, table.seq_q, table.seq_kv)
        batch, heads, kv, queries, keys = (np.maximum(column, 1).astype(float) for column in columns)
        packed = np.where(masked, heads, kv * np.ceil(heads / kv / HEADS))
        blocks = batch * np.where(decode, packed, heads * np.ceil(queries / QUERIES))
        return cls(
            decode, masked, decode_kernel.unsplit(table, chip, software, which), batch, heads, kv, queries, keys,
            np.where(table.window > 0, np.minimum(table.window, keys), keys),
            (table.head_dim + table.head_dim_v).astype(float), blocks,
        )  # fmt: skip


def worker(table: OperatorTable, chip: Chip, which: Ints, software: Software) -> Work:
    """The walls and features of attention rows."""
    table = latent.as_run(table, software, which)
    size = Sizes.of(table, chip, software, which)
    causal = np.where((table.causal > 0) & ~size.decode & (table.window == 0), 0.5, 1.0)
    pairs = size.batch * size.heads * size.queries * size.reach * causal
    stored = _stored(table, software, which)
    waves = np.ceil(size.blocks / chip.sms)
    alone = np.where(
        size.alone, waves * chip.sms / size.blocks, 1.0
    )  # such a block has one SM and its share of the memory
    matrix = _products(table, size, pairs, waves * chip.sms / size.blocks) / chip.at(software.precision[which])
    compute = np.where(size.decode, matrix * alone, np.maximum(matrix, pairs / chip.special))
    columns = [
        *_features(size, chip, waves), np.log2(pairs / chip.special * 1e6), table.phase == Phase.BACKWARD.value, stored, causal,
        latent.is_latent(table), software.precision[which] == Precision.FP8.value,
    ]  # fmt: skip
    place = [np.log2(size.batch) / 2, np.log2(size.heads * size.queries) / 2, np.log2(size.keys)]
    place.append(WIDTH_CELLS * np.log2(size.widths))
    memory = _moved(size, stored) * alone / chip.hbm
    return Work(compute, memory, columns, np.array(place).T, size.blocks, waves)


def compulsory_s(table: OperatorTable, software: Software, which: Ints, sku: Sku) -> Floats:
    """Seconds in which a decode's cache comes from device memory at the datasheet's rate; 0 where some may lie in L2."""
    keys = np.where(table.window > 0, np.minimum(table.window, table.seq_kv), table.seq_kv).astype(float)
    widths = table.head_dim + table.head_dim_v
    # a latent is read once: values are a part of the keys
    widths = np.where(latent.is_latent(table), table.head_dim, widths)
    cache = table.batch * table.kv_heads * keys * widths * _stored(table, software, which)
    streamed = (table.phase == Phase.DECODE.value) & (cache > CACHES * sku.l2_bytes)
    found: Floats = np.where(streamed, cache / sku.hbm_bytes_per_s, 0.0)
    return found


def _stored(table: OperatorTable, software: Software, which: Ints) -> Floats:
    """Bytes of an element of keys and values: expanded from a latent they come from a product, not from the cache."""
    expanded = latent.is_latent(table) & (table.phase != Phase.DECODE.value) & (table.kv_heads > 1)
    return np.where(expanded, OUTPUT, software.column("cached_bytes")[which])


def _moved(size: Sizes, stored: Floats) -> Floats:
    """Bytes of keys and values in reach (of a forward all), of queries and of results."""
    again = np.where(size.masked, 1 + REREAD * (size.heads / size.kv - 1), 1.0)
    cache = np.where(size.decode, size.reach, size.keys) * size.kv * stored * again
    moved: Floats = size.batch * size.widths * (cache + size.queries * size.heads * OUTPUT)
    return moved


def _products(table: OperatorTable, size: Sizes, pairs: Floats, idle: Floats) -> Floats:
    """FLOPs of whole tiles: of a forward over the queries, in whole waves; of a decode over the heads."""
    forward = np.ceil(size.queries / QUERIES) * QUERIES / size.queries * np.minimum(idle, 8.0)
    packed = np.ceil(size.heads / size.kv / HEADS) * HEADS * size.kv / size.heads
    padded = np.where(size.decode, np.where(size.masked, 1.0, packed), forward)
    done: Floats = 2 * pairs * size.widths * padded * np.where(table.phase == Phase.BACKWARD.value, 2.5, 1.0)
    return done


def _features(size: Sizes, chip: Chip, waves: Floats) -> list[Any]:
    """What the residual may depend on, of sizes alone."""
    log, group = np.log2, size.heads / size.kv
    splits = size.batch * size.kv * np.ceil(size.keys / KEYS)
    return [
        *map(log, (size.batch, size.heads, size.kv, size.widths, size.queries, size.keys, size.reach, group)),
        np.minimum(waves * chip.sms / size.blocks, 8),
        *(log(np.minimum(np.maximum(n / chip.sms, 1 / 256), 64)) for n in (size.blocks, size.batch * size.heads, splits)),
        *(np.minimum(np.ceil(n / chip.sms) * chip.sms / n, 8) for n in (size.batch * size.heads, size.batch * size.kv)),
        size.queries % QUERIES > 0, size.decode, size.alone, size.masked, np.where(size.masked, np.minimum(waves, 8), 0),
        np.where(size.masked, log(group), 0), np.where(size.masked, log(size.keys), 0),
    ]  # fmt: skip
