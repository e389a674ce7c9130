"""Number formats: what a user may name, how many bytes an element takes, which scaling blocks it needs."""

from __future__ import annotations

from enum import IntEnum

from tilewise.hwdb.record import Record


class Precision(IntEnum):
    """Format of a matrix multiplication's inputs. The values are stored in tables; never renumber."""

    FP64 = 0
    FP32 = 1
    TF32 = 2
    BF16 = 3
    FP16 = 4
    FP8 = 5  # e4m3 (OCP, or FNUZ on MI300X), one scale per tensor
    FP8_ROW = 6  # e4m3, one scale per row
    INT8 = 7
    MXFP8 = 8
    MXFP6 = 9
    MXFP4 = 10
    NVFP4 = 11
    FP8_BLOCK = 12  # e4m3, one scale per 1 x 128 activations and per 128 x 128 weights (DeepSeek-V3)


class Format(Record):
    """Storage of one precision.

    peak:  the key of this precision's dense rate in a SKU file
    bytes: bytes per element, block scales included
    block: elements along K that share one scale (1: none)
    """

    peak: str
    bytes: float
    block: int = 1


# Block sizes and scale widths: OCP Microscaling Formats v1.0 (32 elements, 8-bit scale); NVFP4: 16 elements, 8-bit scale;
# fp8_block: 128 elements, 32-bit scale (DeepSeek-V3, arXiv 2412.19437, 3.3.2).
FORMATS: dict[Precision, Format] = {
    Precision.FP64: Format("fp64_matrix", 8.0),
    Precision.FP32: Format("fp32", 4.0),
    Precision.TF32: Format("tf32", 4.0),
    Precision.BF16: Format("bf16", 2.0),
    Precision.FP16: Format("fp16", 2.0),
    Precision.FP8: Format("fp8", 1.0),
    Precision.FP8_ROW: Format("fp8", 1.0),
    Precision.INT8: Format("int8", 1.0),
    Precision.MXFP8: Format("mxfp8", 1.0 + 1 / 32, 32),
    Precision.MXFP6: Format("mxfp6", 0.75 + 1 / 32, 32),
    Precision.MXFP4: Format("mxfp4", 0.5 + 1 / 32, 32),
    Precision.NVFP4: Format("nvfp4", 0.5 + 1 / 16, 16),
    Precision.FP8_BLOCK: Format("fp8", 1.0 + 4 / 128, 128),
}

NAMES: dict[str, Precision] = {precision.name.lower(): precision for precision in Precision}
