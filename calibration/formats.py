"""Which of torch's number formats a GPU computes with, from what torch says of itself and of the device."""

from __future__ import annotations

FNUZ = (
    "gfx94"  # CDNA3 (MI300X, MI325X): bias 8, no infinities; CDNA4 and NVIDIA have the OCP form (ROCm precision docs)
)


def fp8_name(hip: str | None, arch: str) -> str:
    """Name of torch's e4m3 type. hip: torch.version.hip, None on NVIDIA; arch: gcnArchName, as "gfx942:sramecc+:xnack-"."""
    return "float8_e4m3fnuz" if hip and arch.startswith(FNUZ) else "float8_e4m3fn"
