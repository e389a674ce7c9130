"""Pointwise chains fused by torch.compile: one or two kernels each, as compiled models launch them.

Widths are static and rows dynamic, so that a chain compiles once a width. On a CPU the chains run uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tilewise.calibration.benchmarks.traffic import COLUMNS, Kernel, Sizes, extent, operands, point, retained, traffic
from tilewise.calibration.order import interleave, shuffled
from tilewise.calibration.protocol import Call, Case, Level, Target
from tilewise.hwdb.record import Record

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

__all__ = ["COLUMNS", "NAME", "cases", "prepare"]

NAME = "compiled"
EPSILON = 1e-5
ROWS = (64, 512, 1000, 2048, 4096, 6144, 8192, 16384)
HEAD, HEADS = 256, 16  # up to this width a norm is over heads, so many times as many rows
# the widths of real models, narrow ones too: inductor keeps a row of up to 1024 in registers and loops over a longer one
HIDDEN, MLP, VOCABULARY = (4096, 2560, 1024, 2048, 768, 1600, 5120, 8192), (14336, 8192), (128256, 50257)
ANY = (4096, 2560, 128, 1024, 2048, 64, 256, 1536, 3072, 5120, 8192)
TWO, THREE = "full:bf16 full:bf16", "full:bf16 full:bf16 full:bf16"


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * w


def rms_norm_residual(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return total, rms_norm(total, w)


def rms_norm_backward(grad: Tensor, x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of input (with the residual's added) and weight."""
    y, g = x.float(), grad.float()
    scale = torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPSILON)
    unit, weighted = y * scale, g * w.float()
    inner = scale * (weighted - unit * (weighted * unit).mean(-1, keepdim=True))
    return residual + inner.to(x.dtype), (g * unit).sum(0).to(x.dtype)


def layer_norm_residual(x: Tensor, residual: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return total, F.layer_norm(total, w.shape, w, b)


def layer_norm_backward(grad: Tensor, x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input (with the residual's added), weight and bias."""
    y, g = x.float(), grad.float()
    centred = y - y.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + EPSILON)
    unit, weighted = centred * scale, g * w.float()
    inner = weighted - weighted.mean(-1, keepdim=True) - unit * (weighted * unit).mean(-1, keepdim=True)
    return residual + (scale * inner).to(x.dtype), (g * unit).sum(0).to(x.dtype), g.sum(0).to(x.dtype)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def silu_mul_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    g, u, d = gate.float(), up.float(), grad.float()
    s = torch.sigmoid(g)
    return (d * u * s * (1 + g * (1 - s))).to(gate.dtype), (d * g * s).to(gate.dtype)


def gelu_bias(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels)


def cross_entropy_backward(logits: Tensor, labels: Tensor) -> Tensor:
    columns = torch.arange(logits.shape[-1], device=logits.device)
    share = torch.softmax(logits.float(), -1) - (columns == labels[:, None]).float()
    return (share / logits.shape[0]).to(logits.dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x[rows, heads, 128] by cos and sin [rows, 1, 128]."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 with one scale a row."""
    scale = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448.0
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


class Chain(Record, kw_only=True):
    """A fused chain: the operator it stands for, its operands (see traffic.py) and its static widths."""

    op: str
    variant: str
    reads: str
    writes: str
    function: Callable[..., Any]
    widths: tuple[int, ...] = HIDDEN
    inner: int = 0


CHAINS = {
    chain.variant: chain
    for chain in (
        Chain(op="rmsnorm", variant="rms_norm", reads="full:bf16 col:bf16", writes="full:bf16", function=rms_norm, widths=ANY),
        Chain(op="rmsnorm", variant="rms_norm_residual", reads=f"{TWO} col:bf16", writes=TWO, function=rms_norm_residual),
        Chain(op="gated_activation", variant="silu_mul", reads=TWO, writes="full:bf16", function=silu_mul, widths=MLP),
        Chain(op="rope", variant="rope", reads="full:bf16", writes="full:bf16", function=rope, widths=(4096, 1024), inner=128),
        Chain(
            op="cross_entropy", variant="cross_entropy", reads="full:bf16", writes="row:fp32",
            function=cross_entropy, widths=VOCABULARY,
        ),
        Chain(op="rmsnorm_backward", variant="rms_norm_backward", reads=f"{THREE} col:bf16", writes="full:bf16",
              function=rms_norm_backward, widths=ANY),
        Chain(op="gated_activation_backward", variant="silu_mul_backward", reads=THREE, writes=TWO,
              function=silu_mul_backward, widths=MLP),
        Chain(op="cross_entropy_backward", variant="cross_entropy_backward", reads="full:bf16", writes="full:bf16",
              function=cross_entropy_backward, widths=VOCABULARY),
        Chain(op="activation", variant="gelu_bias", reads="full:bf16 col:bf16", writes="full:bf16",
              function=gelu_bias, widths=MLP),
        Chain(op="layernorm", variant="layer_norm_residual", reads=f"{TWO} col:bf16 col:bf16", writes=TWO,
              function=layer_norm_residual),
        Chain(op="layernorm_backward", variant="layer_norm_backward", reads=f"{THREE} col:bf16", writes="full:bf16 col:bf16",
              function=layer_norm_backward),
        Chain(op="quantize", variant="fp8_rows", reads="full:bf16", writes="full:fp8 row:fp32", function=quantize_rows, widths=(4096, 2560)),
    )
}  # fmt: skip


@cache
def compiled(variant: str, device_type: str) -> Callable[..., Any]:
    """The chain, compiled anew for each width (a few seconds) but not for each number of rows.

    fullgraph: a chain that dynamo gives up on raises; beyond its limit of recompilations it would run uncompiled.
    """
    torch._dynamo.config.recompile_limit = 64
    backend = "inductor" if device_type == "cuda" else "eager"
    return torch.compile(CHAINS[variant].function, backend=backend, dynamic=False, fullgraph=True)


def kernel(chain: Chain) -> Kernel:
    return Kernel(
        op=chain.op,
        variant=chain.variant,
        precision="bf16",
        read=partial(traffic, chain.reads),
        written=partial(traffic, chain.writes),
        build=partial(build, chain),
        draw=lambda rng: Sizes(1, 1),
    )


def cases(target: Target, level: Level) -> list[Case]:
    """Width after width of every chain: half a budget compiles half as much."""
    groups = []
    chains = list(CHAINS.values())[: 2 if level is Level.TINY else None]
    for chain in chains:
        rows = (64, 100) if level is Level.TINY else ROWS
        widths = (256,) if level is Level.TINY else chain.widths
        sizes = [
            Sizes(r * (HEADS if cols <= HEAD else 1), cols, chain.inner)
            for cols in widths for r in shuffled(rows, chain.variant)
        ]  # fmt: skip
        points = [point(NAME, kernel(chain), s, "reused", target) for s in sizes if s.rows * s.cols < 1.2e9]
        groups.append((float(len(points)), points))
    return interleave(groups)


def prepare(case: Case, pool: Pool) -> list[Call]:
    chain = CHAINS[str(case.key["variant"])]
    sizes = Sizes(int(case.key["rows"]), int(case.key["cols"]), int(case.key["inner"]))
    calls = [build(chain, pool, sizes) for _ in range(case.sets)]
    return retained(calls) if case.key["residency"] == "cold" else calls


def build(chain: Chain, pool: Pool, s: Sizes) -> Call:
    rows = [pool.random(extent(where, s), dtype) for where, dtype in operands(chain.reads) if where != "col"]
    cols = [pool.random(extent(where, s), dtype) for where, dtype in operands(chain.reads) if where == "col"]
    if chain.op == "rope":
        rows = [rows[0].view(s.rows, -1, s.inner)]
        rows += [pool.random((s.rows, 1, s.inner), torch.bfloat16) for _ in ("cos", "sin")]
    if chain.op.startswith("cross_entropy"):
        rows.append(torch.arange(s.rows, device=pool.device) % s.cols)
    for tensor in rows:
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return partial(compiled(chain.variant, pool.device.type), *rows, *cols)
