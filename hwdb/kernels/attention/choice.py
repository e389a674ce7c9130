"""Which attention kernel runs, on which tiles, and how many steps its blocks take.

A block owns `outer` rows (queries; in a backward, keys) of one head and steps through tiles of `inner` rows on the other
side, skipping tiles that the mask hides. Decode packs the query heads that share a key head into one block where the
kernel can, and splits the keys among blocks when there are fewer blocks than SMs (flash-decoding).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb import packaged
from tilewise.hwdb.record import Columns
from tilewise.hwdb.table import VARIANT_CODES, Floats, Ints, OperatorTable, Phase

Mask = NDArray[np.bool_]
FLASH, CUDNN = VARIANT_CODES["flash"], VARIANT_CODES["cudnn"]
KERNELS = ("flash_fwd", "flash_split", "flash_bwd", "cudnn_fwd", "cudnn_bwd", "cudnn_decode", "cudnn_short")
CODES = {name: code for code, name in enumerate(KERNELS)}
# by flash or not: backward; then flash's forward and its split one, or cuDNN's forward, decode and decode of few keys
CHOICES = np.array([[CODES[f"cudnn_{n}"] for n in ("bwd", "fwd", "decode", "short")],
                    [CODES[f"flash_{n}"] for n in ("bwd", "fwd", "split", "split")]])  # fmt: skip
SPLITS_MAX = 128  # flash-attention 2's num_splits_heuristic, like the 0.8 and 0.85 below
SHORT_KEYS = 128  # cuDNN takes another kernel up to as many cached keys
SPLIT_KEYS = 512  # cuDNN does not split fewer keys


@cache
def facts() -> dict[str, Any]:
    """attention.toml: what each backend takes, and the tiles of its kernels."""
    return packaged.toml("tilewise.hwdb.kernels.attention", "attention.toml")


@cache
def _tiles() -> tuple[Ints, Ints, Ints]:
    """(padded width, outer, inner) of every kernel by head width in steps of 8; 0 where it takes none."""
    sizes = np.zeros((3, len(KERNELS), 256 // 8 + 1), np.int64)
    for code, name in enumerate(KERNELS):
        for width, (outer, inner) in sorted(
            ((int(w), t) for w, t in facts()["kernel"][name]["tiles"].items()), reverse=True
        ):
            sizes[:, code, : width // 8 + 1] = np.array([width, outer, inner])[:, None]
    return sizes[0], sizes[1], sizes[2]


class Grid(Columns):
    """How a row is cut up; arrays of shape (rows,).

    kernel:  index into KERNELS
    width, outer, inner: padded head width and tile
    blocks:  thread blocks, splits included
    steps:   tiles that all blocks step through
    longest: tiles of the longest block
    splits:  blocks among which the keys of one output tile are split
    useful:  query-key pairs kept by the mask over those of all tiles stepped through
    """

    kernel: Ints
    width: Ints
    outer: Ints
    inner: Ints
    blocks: Floats
    steps: Floats
    longest: Floats
    splits: Floats
    useful: Floats


def windowed(table: OperatorTable) -> Mask:
    """Rows whose kernel is told of a window: not a decode over a cache that holds no more than the window."""
    found: Mask = (table.window > 0) & ((table.phase != Phase.DECODE.value) | (table.window < table.seq_kv))
    return found


def backend(table: OperatorTable) -> Ints:
    """FLASH or CUDNN of each row: what it asks for, else torch's first choice on Hopper, which is cuDNN where it can.

    cuDNN takes no windows and no head that is no multiple of 8 wide (torch 2.11, sdp_utils.cpp, check_cudnn_tensor_shapes)
    """
    flash = windowed(table) | (table.head_dim % facts()["cudnn"]["multiple"] > 0)
    return np.where(table.variant > 0, table.variant, np.where(flash, FLASH, CUDNN))


def grid(table: OperatorTable, backends: Ints, sms: int) -> Grid:
    """The kernel and its blocks for rows that their backend takes (see `attention.refusals`)."""
    flash = backends == FLASH
    backward, decode = table.phase == Phase.BACKWARD.value, table.phase == Phase.DECODE.value
    group = np.maximum(table.heads // np.maximum(table.kv_heads, 1), 1)
    packed = np.where((table.seq_q == 1) & ~windowed(table), group, 1)
    queries, items = table.seq_q * packed, table.batch * table.heads // packed
    wide = np.maximum(table.head_dim, table.head_dim_v)
    splits = np.ones(len(table), np.int64)
    some = np.flatnonzero(flash & ~backward)
    if len(some):
        splits[some] = _flash_splits(queries[some], items[some], table.seq_kv[some], wide[some], sms)
    short = decode & (table.seq_kv <= SHORT_KEYS)
    kernel = CHOICES[flash.astype(int), np.where(backward, 0, np.where(flash, 1 + (splits > 1), 1 + decode + short))]
    width, outer, inner = (sizes[kernel, np.minimum(-(-wide // 8), 32)] for sizes in _tiles())
    rows, across = np.where(backward, table.seq_kv, queries), np.where(backward, queries, table.seq_kv)
    offset = np.where(backward | (packed > 1), 0, table.seq_kv - table.seq_q)
    causal = (table.causal > 0) & ~decode
    steps, longest = visible(rows, across, outer, inner, offset, causal, np.where(decode, 0, table.window))
    over = items * -(-rows // outer)
    lean = (kernel == CODES["cudnn_decode"]) & (over <= sms / 2) & (table.seq_kv > SPLIT_KEYS)
    splits = np.where(lean, np.minimum(np.maximum(sms // over, 1), np.maximum(longest, 1).astype(int)), splits)
    kept = _pairs(queries, table.seq_kv, causal, table.window, packed)
    return Grid(
        kernel, width, outer, inner, (over * splits).astype(float), items * steps, np.ceil(longest / splits),
        splits.astype(float), kept / (steps * outer * inner),
    )  # fmt: skip


def visible(
    rows: Ints, across: Ints, outer: Ints, inner: Ints, offset: Ints, causal: Mask, window: Ints
) -> tuple[Floats, Floats]:
    """Tiles that the blocks of one head step through together, and those of the longest block.

    Block i sees columns from max(0, offset - window + 1 + i outer) to min(across, offset + (i + 1) outer) under a causal
    mask. Sums of the rounded ends have a closed form: their remainders by `inner` repeat, with a known mean.
    """
    blocks, all_tiles = np.ceil(rows / outer), np.ceil(across / inner)
    common = np.gcd(outer, inner)
    spread = (inner - common) / 2
    ramp = np.minimum(
        np.maximum(np.ceil((across - offset) / outer) - 1, 0), blocks
    )  # blocks that end before the last column
    ends = ramp * offset + outer * ramp * (ramp + 1) / 2 + ramp * (-offset % common + spread)
    ends = ends / inner + (blocks - ramp) * all_tiles
    first = offset - window + 1
    late = np.minimum(np.maximum(np.ceil(-first / outer), 0), blocks)  # blocks that start at column 0
    starts = (blocks - late) * (first - (first % common + spread)) + outer * (
        blocks * (blocks - 1) - late * (late - 1)
    ) / 2
    windowed = (window > 0) & (window < across)
    steps = np.where(causal, ends - np.where(windowed, starts / inner, 0), blocks * all_tiles)
    reach = np.minimum(np.ceil((outer + window - 1 + spread) / inner), all_tiles)
    longest = np.where(causal & windowed, reach, all_tiles)
    return np.maximum(steps, 1.0), np.maximum(longest, 1.0)


def _pairs(queries: Ints, keys: Ints, causal: Mask, window: Ints, packed: Ints) -> Floats:
    """Query-key pairs of one head (packed: of those that share a block) that the mask keeps."""
    reach = np.where((window > 0) & causal, np.minimum(window, keys), keys)
    short = np.minimum(np.maximum(reach - 1 - (keys - queries), 0), queries)  # queries that see less than their reach
    masked = short * (keys - queries) + short * (short + 1) / 2 + (queries - short) * reach
    return np.where(causal & (packed == 1), masked, queries * keys * 1.0)


def _flash_splits(queries: Ints, items: Ints, keys: Ints, wide: Ints, sms: int) -> Ints:
    """flash-attention 2's num_splits_heuristic: the fewest splits that come within 85 % of the best use of the SMs."""
    splits = np.ones(len(queries), np.int64)
    slots = 2 * sms
    blocks = items * -(-queries // 64)
    tiles = -(-keys // np.where(wide <= 64, 256, np.where(wide <= 128, 128, 64)))
    few = np.flatnonzero((blocks < 0.8 * slots) & (tiles > 1))
    if not len(few):
        return splits
    n = np.arange(1, SPLITS_MAX + 1)
    tiles, blocks = tiles[few, None], blocks[few, None]
    each = -(-tiles // n)
    eligible = (n <= tiles) & (each != np.pad(each[:, :-1], ((0, 0), (1, 0))))
    waves = blocks * n / slots
    efficiency = np.where(eligible, waves / np.ceil(waves), 0)
    splits[few] = 1 + np.argmax(efficiency >= 0.85 * efficiency.max(1, keepdims=True), axis=1)
    return splits
