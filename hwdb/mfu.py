"""From a measured rate to a utilisation with a named peak. Over 100 % is an error, never a number."""

from __future__ import annotations

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Peak

CONVENTION = (
    "executed model FLOPs: 2 per multiply-add, causal half counted once, embedding lookup zero, lm_head counted, "
    "recomputation left out"
)
DENSE = (
    "peaks are dense: the doubled figures of datasheets (1979 TFLOPS for bf16 on H100 and H800) hold for 2:4 sparse "
    "weights only"
)


class Utilisation(Record):
    """A measured rate over a peak: mfu in (0, 1], both rates in FLOP/s."""

    mfu: float
    flops_per_s: float
    peak: Peak

    def __str__(self) -> str:
        return f"{self.mfu:.1%} MFU: {self.flops_per_s / 1e12:.1f} of {self.peak}"


def utilisation(flops_per_s: float, peak: Peak) -> Utilisation:
    """MFU of a measured rate per GPU.

    Raises InvalidInput: BAD_RATE for a rate that is not positive, OVER_PEAK for one above the dense peak, with the clock
    that would explain it and whether the GPU could run it.
    """
    if not 0 < flops_per_s < float("inf"):
        message = f"a measured rate of {flops_per_s:g} FLOP/s is not a positive number"
        raise InvalidInput(message, reason="BAD_RATE", field="flops_per_s")
    if flops_per_s > peak.flops_per_s:
        raise _over_peak(flops_per_s, peak)
    return Utilisation(flops_per_s / peak.flops_per_s, flops_per_s, peak)


def rate(tokens_per_s: float, flops_per_token: float, gpus: int = 1) -> float:
    """FLOP/s of one GPU from a step's token rate over `gpus` GPUs and the model FLOPs of one token."""
    if gpus < 1:
        raise InvalidInput(
            f"a rate over {gpus} GPUs has no meaning; allowed: 1 and more", reason="BAD_RATE", field="gpus"
        )
    return tokens_per_s * flops_per_token / gpus


def _over_peak(flops_per_s: float, peak: Peak) -> InvalidInput:
    ratio = flops_per_s / peak.flops_per_s
    clock = ratio * peak.clock_hz
    if clock <= peak.clock_max_hz:
        cause = f"the boost clock of {peak.clock_max_hz / 1e6:.0f} MHz could explain it"
    else:
        cause = f"the GPU runs {peak.clock_max_hz / 1e6:.0f} MHz at most, so the FLOP count or the GPU's name is wrong"
    message = (
        f"{ratio:.1%} of {peak}: peak or FLOP count is wrong; {flops_per_s / 1e12:.1f} TFLOPS would need "
        f"{clock / 1e6:.0f} MHz; {cause}"
    )
    return InvalidInput(
        message, reason="OVER_PEAK", field="flops_per_s", ratio=f"{ratio:.4f}", clock_mhz=f"{clock / 1e6:.0f}"
    )
