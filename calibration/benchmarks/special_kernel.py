"""A Triton kernel that evaluates one function many times on numbers in registers. Imported where Triton is there."""

from typing import Any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
from triton.language.extra import libdevice  # type: ignore[import-not-found,import-untyped,unused-ignore]

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator,misc,unused-ignore]
def evaluate(x_ptr, y_ptr, repeats, FUNCTION: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + offsets)
    for _ in range(repeats):
        if FUNCTION == "exp2":
            x = tl.exp2(-x)
        elif FUNCTION == "exp":
            x = tl.exp(-x)
        elif FUNCTION == "rsqrt":
            x = tl.rsqrt(x)
        elif FUNCTION == "log2":
            x = tl.log2(tl.abs(x))
        elif FUNCTION == "sin":
            x = tl.sin(x)
        elif FUNCTION == "tanh":
            x = libdevice.tanh(x)
        elif FUNCTION == "erf":
            x = tl.erf(x)
        else:
            x = tl.fma(x, 0.5, 0.25)
    tl.store(y_ptr + offsets, x)


def launch(x: Any, y: Any, repeats: int, function: str) -> None:
    """x and y: fp32 vectors of a multiple of BLOCK elements."""
    evaluate[(x.numel() // BLOCK,)](x, y, repeats, FUNCTION=function, SIZE=BLOCK, num_warps=4)
