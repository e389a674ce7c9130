"""SKUs of the same dies: what was published of one holds for the other as a share of its datasheet."""

from __future__ import annotations

from msgspec.structs import replace

from tilewise.hwdb.sku import Sku
from tilewise.hwdb.times import Trust

SHARE_OF = {
    "hbm_bytes_per_s": "hbm_bytes_per_s",
    "all_reduce_bus_bytes_per_s": "link_bytes_per_s",
}  # latencies: of nothing


def twin(sku: Sku) -> str:
    """The SKU of the same dies that was measured; "" where none is known."""
    return str(sku.figures["same_dies"].value) if "same_dies" in sku.figures else ""


def carried(sku: Sku, there: Sku) -> Sku:
    """`sku` with the ceilings that only its twin has."""
    lacking = {key: one for key, one in there.ceilings.items() if key not in sku.ceilings}
    mine = {
        key: replace(one, value=one.value * _datasheet(sku, key) / _datasheet(there, key), trust=Trust.DATASHEET)
        for key, one in lacking.items()
    }
    return replace(sku, ceilings={**sku.ceilings, **mine})


def _datasheet(sku: Sku, key: str) -> float:
    """What a ceiling is a share of: a dense peak, the memory's bandwidth, the links."""
    name = key.removeprefix("gemm_").removesuffix("_flops_per_s").removesuffix("_sustained")
    if name in sku.peaks:
        return float(sku.peaks[name].value)
    return sku.number(SHARE_OF[key]) if key in SHARE_OF else 1.0
