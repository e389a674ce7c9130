"""Which products a library takes at all: torch multiplies in fp8 only where rows and columns of the weight are multiples of 16."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.kinds import tiled
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import OperatorTable
from tilewise.hwdb.times import Times

STEP = 16  # torch 2.13, aten/src/ATen/native/cuda/ScaledBlas.cpp: "mat2 shape must be divisible by 16"
SMALL_S = 3e-5  # shorter ones take as long in 16 bit, to which they fall back
FORMATS = np.array([code in (Precision.FP8, Precision.FP8_ROW) for code in Precision])


def checked(table: OperatorTable, times: Times) -> Times:
    """`times` without those of products that torch refuses; an engine's kernels, asked for by name, have rules of their own."""
    asked = tiled(table) & FORMATS[table.precision] & (table.library == 0)
    if not asked.any():
        return times
    rows = np.flatnonzero(asked & ((table.n % STEP > 0) | (table.k % STEP > 0)) & ~(times.time_s < SMALL_S))
    if not len(rows):
        return times
    texts: dict[str, int] = {}
    refusal = times.refusal.copy()
    for row in rows.tolist():
        text = _why(int(table.n[row]), int(table.k[row]))
        refusal[row] = texts.setdefault(text, len(times.refusals) + len(texts))
    blank = np.where(np.isin(np.arange(len(table)), rows), np.nan, 1.0)
    bounds = {name: getattr(times, name) * blank for name in ("time_s", "low_s", "high_s")}
    return replace(times, **bounds, refusal=refusal, refusals=(*times.refusals, *texts))


def _why(n: int, k: int) -> str:
    off = " and ".join(f"{name} {_nearest(size)}" for name, size in (("n", n), ("k", k)) if size % STEP)
    return f"NOT_TAKEN: torch._scaled_mm takes n and k in multiples of {STEP}, not {n} and {k}; the nearest is {off}"


def _nearest(size: int) -> str:
    below, above = size // STEP * STEP, -(-size // STEP) * STEP
    return f"{below} or {above}" if below else str(above)
