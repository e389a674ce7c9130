"""The rates that the roofline divides by: measured ceilings where the SKU file has them, else siblings' fractions."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints
from tilewise.hwdb.times import State, Trust

SCALED = ("fp8", "int8", "mxfp8", "mxfp6", "mxfp4", "nvfp4")  # formats with scales: the ones that draw the most power
NONE = 1e-30  # FLOP/s of a precision that the GPU lacks: keeps the arithmetic finite, the row is refused


class Rates(Record):
    """Rates per second of one SKU in one state; arrays are indexed by Precision.

    compute, compute_peak: reachable and dense FLOP/s; compute_trust: codes of Trust
    refusal:  index into `refusals` of why a precision is missing, -1 where it is there
    hbm, hbm_peak, cache, bus: bytes per second; cache_bytes: what stays in the L2 between two kernels
    special:  exp evaluations per second
    hop_s, base_s: latency of a collective is base_s + hop_s (ranks - 1); floor_s: the smallest kernel
    """

    compute: Floats
    compute_peak: Floats
    compute_trust: Ints
    refusal: Ints
    refusals: tuple[str, ...]
    hbm: float
    hbm_peak: float
    cache: float
    cache_bytes: float
    special: float
    bus: float
    base_s: float
    hop_s: float
    floor_s: float
    memory_trust: Trust
    collective_trust: Trust


@cache
def assumptions() -> Mapping[str, Any]:
    """hwdb/roofline.toml: fractions, tiles and spreads, each with its source."""
    return tomllib.loads((files("tilewise.hwdb") / "roofline.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def rates(sku: Sku, state: State) -> Rates:
    """The rates of a SKU in a state."""
    compute, peak, trust, refusal, refusals = _compute(sku, state)
    hbm, memory_trust = _ceiling(sku, "hbm_bytes_per_s", _fraction(sku, "hbm") * sku.hbm_bytes_per_s)
    bus, collective_trust = _ceiling(
        sku, "all_reduce_bus_bytes_per_s", _fraction(sku, "bus") * sku.number("link_bytes_per_s")
    )
    return Rates(
        compute=compute,
        compute_peak=peak,
        compute_trust=trust,
        refusal=refusal,
        refusals=refusals,
        hbm=hbm,
        hbm_peak=sku.hbm_bytes_per_s,
        cache=_ceiling(sku, "l2_bytes_per_s", _fraction(sku, "cache_over_hbm") * hbm)[0],
        cache_bytes=_fraction(sku, "cache_share") * sku.last_level_bytes,
        special=_fraction(sku, "special") * sku.exp_per_s,
        bus=bus,
        base_s=_ceiling(sku, "collective_base_s", _fraction(sku, "collective_base_s"))[0],
        hop_s=_ceiling(sku, "collective_hop_s", _fraction(sku, "collective_hop_s"))[0],
        floor_s=_ceiling(sku, "smallest_kernel_s", _fraction(sku, "smallest_kernel_s"))[0],
        memory_trust=memory_trust,
        collective_trust=collective_trust,
    )


def _compute(sku: Sku, state: State) -> tuple[Floats, Floats, Ints, Ints, tuple[str, ...]]:
    compute, peaks = np.full(len(Precision), NONE), np.full(len(Precision), NONE)
    trust, refusal = np.zeros(len(Precision), np.int64), np.full(len(Precision), -1)
    refusals: list[str] = []
    for precision in Precision:
        try:
            peak = sku.peak(precision)
        except NotAvailable as error:
            refusal[precision] = len(refusals)
            refusals.append(error.message)
        else:
            peaks[precision] = peak.flops_per_s
            compute[precision], trust[precision] = _matrix_rate(sku, peak.key, peak.flops_per_s, state)
    return compute, peaks, trust, refusal, tuple(refusals)


def _matrix_rate(sku: Sku, key: str, peak: float, state: State) -> tuple[float, Trust]:
    burst, trust = _ceiling(sku, f"gemm_{key}_flops_per_s", _assumed_fraction(sku, key) * peak)
    if state is State.BURST:
        return burst, trust
    assumed = _fraction(sku, "sustained_scaled" if key in SCALED else "sustained") * burst
    sustained, sustained_trust = _ceiling(sku, f"gemm_{key}_sustained_flops_per_s", assumed)
    return min(burst, sustained), min(trust, sustained_trust)


def _assumed_fraction(sku: Sku, key: str) -> float:
    """Fraction of the dense peak for a format nobody measured: its twin's on this SKU, else the generation's."""
    twin = assumptions()["twin"].get(key)
    ceiling = sku.ceilings.get(f"gemm_{twin}_flops_per_s")
    if ceiling is None or twin not in sku.peaks:
        return _fraction(sku, "gemm")
    return ceiling.value / float(sku.peaks[twin].value)


def _ceiling(sku: Sku, key: str, assumed: float) -> tuple[float, Trust]:
    if key in sku.ceilings:
        return sku.ceilings[key].value, sku.ceilings[key].trust
    return assumed, Trust.DATASHEET


def _fraction(sku: Sku, key: str) -> float:
    value = assumptions()["fraction"][key]
    return float(value[sku.generation] if isinstance(value, Mapping) else value)
