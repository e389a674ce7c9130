"""Matrix multiplication as torch calls it: torch.mm, torch._scaled_mm, torch._int_mm."""

from __future__ import annotations

from functools import cache

import torch

from tilewise.calibration import gemm_plan
from tilewise.calibration.benchmarks.device import Pool
from tilewise.calibration.formats import fp8_name
from tilewise.calibration.gemm_plan import COLUMNS, Gemm, cases
from tilewise.calibration.protocol import Call, Case, Unmeasurable

__all__ = ["COLUMNS", "NAME", "call", "cases", "prepare"]

NAME = "gemm"
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}


def prepare(case: Case, pool: Pool) -> list[Call]:
    gemm = Gemm(*(case.key[name] for name in gemm_plan.Gemm._fields))  # type: ignore[arg-type]
    return [call(gemm, pool) for _ in range(case.sets)]


def call(gemm: Gemm, pool: Pool) -> Call:
    """One call on operands of its own."""
    if gemm.dtype in ("fp8", "fp8row"):
        return _scaled(gemm, pool)
    if gemm.dtype in ("mxfp8", "nvfp4"):
        return _block_scaled(gemm, pool)
    if gemm.dtype == "int8":
        return _integer(gemm, pool)
    return _plain(gemm, pool)


def _plain(gemm: Gemm, pool: Pool) -> Call:
    kind, dtype, m, n, k = gemm
    element = TORCH[dtype]
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"  # read when the call is issued: one dtype at a time
    out = pool.output((m, n), element)
    if kind == "fwd":
        x, w = pool.random((m, k), element), pool.random((n, k), element).t()
    elif kind == "dgrad":
        x, w = pool.random((m, k), element), pool.random((k, n), element)
    else:
        x, w = pool.random((k, m), element).t(), pool.random((k, n), element)
    return lambda: torch.mm(x, w, out=out)


def _scaled(gemm: Gemm, pool: Pool) -> Call:
    """fp8 with one scale a tensor or one a row, bf16 out."""
    x, w = pool.random((gemm.m, gemm.k), _fp8()), pool.random((gemm.n, gemm.k), _fp8()).t()
    ones = _ones(pool.device)
    one, other = ones[0], ones[0]
    if gemm.dtype == "fp8row":
        one, other = ones[: gemm.m].view(-1, 1), ones[: gemm.n].view(1, -1)
    return lambda: torch._scaled_mm(x, w, scale_a=one, scale_b=other, out_dtype=torch.bfloat16, use_fast_accum=True)


@cache
def _fp8() -> torch.dtype:
    """e4m3 in the form that the GPU computes with: FNUZ on MI300X and MI325X, OCP elsewhere."""
    arch = torch.cuda.get_device_properties(0).gcnArchName if torch.version.hip else ""
    return getattr(torch, fp8_name(torch.version.hip, arch))


@cache
def _ones(device: torch.device) -> torch.Tensor:
    return torch.ones(2**19, device=device)


def _block_scaled(gemm: Gemm, pool: Pool) -> Call:
    """mxfp8 (a power-of-two scale every 32 elements) and nvfp4 (an e4m3 scale every 16), bf16 out."""
    block, scale_type = (32, torch.float8_e8m0fnu) if gemm.dtype == "mxfp8" else (16, torch.float8_e4m3fn)
    if gemm.dtype == "mxfp8":
        x, w = pool.random((gemm.m, gemm.k), _fp8()), pool.random((gemm.n, gemm.k), _fp8()).t()
    else:
        packed = torch.float4_e2m1fn_x2
        x = pool.random((gemm.m, gemm.k // 2), torch.int8).view(packed)
        w = pool.random((gemm.n, gemm.k // 2), torch.int8).view(packed).t()

    def scales(rows: int) -> torch.Tensor:  # padded to 128 x 4, as cuBLASLt wants them
        count = -(-rows // 128) * 128 * -(-(gemm.k // block) // 4) * 4
        return torch.ones(count, device=pool.device).to(scale_type)

    one, other = scales(gemm.m), scales(gemm.n)
    return lambda: torch._scaled_mm(x, w, scale_a=one, scale_b=other, out_dtype=torch.bfloat16)


def _integer(gemm: Gemm, pool: Pool) -> Call:
    if gemm.kind != "fwd":
        raise Unmeasurable("torch._int_mm is measured forward alone")
    x, w = pool.random((gemm.m, gemm.k), torch.int8), pool.random((gemm.n, gemm.k), torch.int8).t()
    out = pool.output((gemm.m, gemm.n), torch.int32)
    return lambda: torch._int_mm(x, w, out=out)
