"""Target of a plan: the SKU file's facts in the form that the suite needs."""

from __future__ import annotations

from tilewise.calibration.protocol import Target
from tilewise.hwdb.sku import Sku

CPU = Target(
    sku="cpu",
    vendor="cpu",
    arch="cpu",
    sms=1,
    memory_bytes=2**33,
    l2_bytes=2**25,
    bandwidth_bytes_per_s=2e12,  # generous: a rehearsal proves the path, not the physics
    max_clock_hz=1e10,
    tdp_w=0.0,
    peaks={"bf16": (1e14, 1e10), "fp32": (1e14, 1e10)},
)


def target(sku: Sku, gpus: int = 1) -> Target:
    """What the suite plans for."""
    return Target(
        sku=sku.name,
        vendor=sku.vendor,
        arch=_arch(sku),
        sms=sku.sm_count,
        memory_bytes=sku.hbm_bytes,
        l2_bytes=sku.l2_bytes,
        bandwidth_bytes_per_s=sku.hbm_bytes_per_s,
        max_clock_hz=sku.clock_boost_hz,
        tdp_w=sku.tdp_w,
        peaks={key: (float(figure.value), sku.clock_hz(key)) for key, figure in sku.peaks.items()},
        gpus=gpus,
    )


def _arch(sku: Sku) -> str:
    """As sm_90 for compute capability 9.0; AMD's names stay as they are."""
    capability = str(sku.figures["compute_capability"].value)
    return capability if capability.startswith("gfx") else "sm_" + capability.replace(".", "")
