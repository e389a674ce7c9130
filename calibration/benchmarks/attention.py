"""Scaled dot product attention by backend: forward, backward alone, decode, sliding windows.

The forward calls what F.scaled_dot_product_attention dispatches to, without its Python; the backward calls the
backend's own backward on a saved forward, so that it is captured and timed alone. Operands are contiguous
[batch, heads, seq, head_dim]. torch offers windows through flash attention only.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention, can_use_flash_attention

from tilewise.calibration.order import interleave
from tilewise.calibration.protocol import Call, Case, Level, Target, Unmeasurable
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import State

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

NAME = "attention"
COLUMNS = (
    "phase",
    "backend",
    "batch",
    "heads",
    "kv_heads",
    "head_dim",
    "head_dim_v",
    "seq_q",
    "seq_kv",
    "causal",
    "window",
)
ATEN = torch.ops.aten
Heads = tuple[int, int, int, int]  # query heads, kv heads, head_dim, head_dim of v

# Real models' heads on one GPU, tensor parallelism included, and head_dims between them.
HEADS: tuple[Heads, ...] = (
    *(
        (heads, kv, 128, 128)
        for heads, kv in ((32, 8), (32, 32), (64, 8), (16, 16), (8, 1), (28, 4), (40, 40), (16, 2))
    ),
    *((heads, kv, 64, 64) for heads, kv in ((32, 8), (16, 16), (12, 12), (14, 2), (64, 8), (9, 3), (8, 8))),
    *((heads, kv, 80, 80) for heads, kv in ((32, 32), (16, 16), (8, 8))),
    *((heads, kv, 96, 96) for heads, kv in ((32, 32), (64, 64), (12, 4))),
    *((heads, kv, 256, 256) for heads, kv in ((16, 8), (8, 1), (4, 1), (16, 16), (8, 4))),
    *((heads, kv, 192, 192) for heads, kv in ((96 // 4, 2), (16, 16), (32, 8))),
    *((heads, kv, 72, 72) for heads, kv in ((16, 16), (64 // 4, 4))),
    *((heads, kv, 112, 112) for heads, kv in ((32, 32), (16, 4))),
    *((heads, kv, 160, 160) for heads, kv in ((16, 16), (32, 8))),
    *((16, 16, width, width) for width in (32, 40, 48, 56, 88, 104, 120)),  # of vision and speech: narrow or padded
    *((heads, kv, 192, 128) for heads, kv in ((16, 16), (64, 64), (128, 128))),  # MLA, not absorbed
    *((heads, kv, 128, 128) for heads, kv in ((64, 64), (4, 4), (5, 5), (48, 4), (71, 1))),
)
SEQUENCES = (128, 256, 384, 512, 768, 1000, 1024, 1536, 2048, 2048, 3000, 4096, 4096, 6144, 8192, 12288, 16384, 32768)
CONTEXTS = (128, 512, 1000, 1024, 2048, 3000, 4096, 8192, 12288, 16384, 32768, 65536, 131072)
UNEVEN = 0.4  # share of the lengths that are any number, as prompts are
BATCHES = (1, 1, 1, 2, 3, 4, 8, 16, 32)
WINDOWS = (128, 256, 512, 1024, 2048, 4096)
FORWARD_RATE, BACKWARD_RATE = 4.5e14, 3.5e14  # FLOP/s, for estimates only
LIMIT_S = {"forward": 5e-3, "backward": 8e-3, "decode": 1.5e-3}


class Shape(Record, kw_only=True):
    """The columns behind phase and backend, in their order."""

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int
    seq_q: int
    seq_kv: int
    causal: int = 0
    window: int = 0

    @property
    def pairs(self) -> float:
        """Query-key pairs that the mask keeps, for one head of one sequence; the causal half counted once."""
        if self.window and self.window < self.seq_kv:
            return float(self.seq_q * self.window - self.window**2 / 2)
        return self.seq_q * self.seq_kv / (2 if self.causal else 1)

    @property
    def flops(self) -> float:
        """Model FLOPs of a forward."""
        return 2.0 * self.batch * self.heads * self.pairs * (self.head_dim + self.head_dim_v)

    @property
    def bytes(self) -> float:
        """bf16 q, k, v and output."""
        wide = self.head_dim + self.head_dim_v
        return 2.0 * self.batch * wide * (self.heads * self.seq_q + self.kv_heads * self.seq_kv)


def self_attention(rng: random.Random) -> Shape:
    heads, kv_heads, head_dim, head_dim_v = rng.choice(HEADS)
    seq = _length(rng, SEQUENCES)
    causal = int(rng.random() < 0.75)
    # a chunk of a prefill: queries at the end of a longer cache, which the backends offer unmasked
    seq_kv = seq * rng.choice((2, 4, 8)) if not causal and rng.random() < 0.3 else seq
    return Shape(
        batch=rng.choice(BATCHES),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        seq_q=seq,
        seq_kv=min(seq_kv, 32768),
        causal=causal,
    )


def decode(rng: random.Random) -> Shape:
    """One new token a sequence."""
    batch = rng.choice((1, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128))  # last waves of every size
    return replace(self_attention(rng), batch=batch, seq_q=1, seq_kv=_length(rng, CONTEXTS), causal=0)


def _length(rng: random.Random, usual: Sequence[int]) -> int:
    if rng.random() >= UNEVEN:
        return rng.choice(usual)
    return round(math.exp(rng.uniform(math.log(usual[0]), math.log(usual[-1]))))


def windowed(rng: random.Random) -> Shape:
    shape = self_attention(rng)
    seq = max(1024, shape.seq_q)
    return replace(shape, seq_q=seq, seq_kv=seq, causal=1, window=rng.choice(WINDOWS), head_dim_v=shape.head_dim)


# phase, points by backend, how shapes are drawn
PLAN: tuple[tuple[str, int, Callable[[random.Random], Shape]], ...] = (
    ("forward", 130, self_attention),
    ("backward", 110, self_attention),
    ("decode", 90, decode),
)
# long steady work, for the models of power and clock: (phase, the columns of Shape)
SUSTAINED: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("forward", (2, 32, 8, 128, 128, 8192, 8192, 1)),
    ("backward", (2, 32, 8, 128, 128, 4096, 4096, 1)),
    ("forward", (4, 32, 32, 64, 64, 4096, 4096, 1)),
    ("decode", (64, 32, 8, 128, 128, 1, 8192)),
)
WINDOWED_PLAN = (("forward", 64), ("backward", 32))
BACKENDS = {"nvidia": ("flash", "cudnn"), "amd": ("flash",), "cpu": ("cpu",)}


def estimate_s(phase: str, shape: Shape) -> float:
    """Rough time of one call."""
    flops_s = shape.flops / FORWARD_RATE if phase != "backward" else 2.5 * shape.flops / BACKWARD_RATE
    return 5e-6 + max(flops_s, shape.bytes / 2e12 * (2 if phase == "backward" else 1))


def wanted(phase: str, shape: Shape, level: Level) -> bool:
    if level is Level.TINY:
        return shape.flops < 1e8 and shape.bytes < 1e6
    return estimate_s(phase, shape) < LIMIT_S[phase] and shape.bytes < 5e9


def draws(phase: str, draw: Callable[[random.Random], Shape], points: int, level: Level) -> list[Shape]:
    """Different shapes; on a tiny level the sizes are cut until they fit."""
    rng = random.Random(f"{NAME} {phase} {draw.__name__}")
    found: dict[Shape, None] = {}
    while len(found) < points:
        shape = draw(rng)
        while not wanted(phase, shape, level) and max(shape.batch, shape.seq_kv) > 16:
            shape = smaller(shape)
        if wanted(phase, shape, level):
            found.setdefault(shape)
    return list(found)


def smaller(shape: Shape) -> Shape:
    """Half the batch, else half the sequence."""
    if shape.batch > 1:
        return replace(shape, batch=shape.batch // 2)
    return replace(shape, seq_q=max(1, shape.seq_q // 2), seq_kv=shape.seq_kv // 2)


def case(phase: str, backend: str, shape: Shape) -> Case:
    values = (phase, backend, *(getattr(shape, column) for column in COLUMNS[2:]))
    return Case(
        family=NAME,
        key=dict(zip(COLUMNS, values, strict=True)),
        estimate_s=estimate_s(phase, shape),
        bytes=shape.bytes * (2 if phase == "backward" else 1),
        flops=shape.flops * (2.5 if phase == "backward" else 1),
        peak="bf16",
    )


def cases(target: Target, level: Level) -> list[Case]:
    """Every shape on every backend, so that backends can be compared shape by shape."""
    backends = BACKENDS[target.vendor]
    groups = []
    for phase, points, draw in PLAN:
        shapes = draws(phase, draw, 3 if level is Level.TINY else points, level)
        groups += [(float(points), [case(phase, backend, shape) for shape in shapes]) for backend in backends]
    for phase, points in WINDOWED_PLAN if "flash" in backends else ():
        shapes = draws(phase, windowed, 2 if level is Level.TINY else points, level)
        groups.append((float(points), [case(phase, "flash", shape) for shape in shapes]))
    return [*(sustained(backends) if level is Level.FULL else []), *interleave(groups)]


def sustained(backends: Sequence[str]) -> list[Case]:
    return [
        replace(case(phase, backend, shape_of(sizes)), state=State.SUSTAINED)
        for phase, sizes in SUSTAINED
        for backend in backends
    ]


def shape_of(sizes: Sequence[int]) -> Shape:
    """Sizes in the order of the columns; those left out are 0."""
    return Shape(**dict(zip(COLUMNS[2:], sizes, strict=False)))


def prepare(case: Case, pool: Pool) -> list[Call]:
    shape = shape_of([int(case.key[name]) for name in COLUMNS[2:]])
    phase, backend = str(case.key["phase"]), str(case.key["backend"])
    if shape.window:
        return [windowed_call(pool, shape, phase) for _ in range(case.sets)]
    return [call(pool, shape, phase, backend) for _ in range(case.sets)]


def operands(pool: Pool, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    q = pool.random((shape.batch, shape.heads, shape.seq_q, shape.head_dim), torch.bfloat16)
    k = pool.random((shape.batch, shape.kv_heads, shape.seq_kv, shape.head_dim), torch.bfloat16)
    v = pool.random((shape.batch, shape.kv_heads, shape.seq_kv, shape.head_dim_v), torch.bfloat16)
    return q, k, v


def call(pool: Pool, shape: Shape, phase: str, backend: str) -> Call:
    q, k, v = operands(pool, shape)
    check_offered(backend, shape, q, k, v, gradient=phase == "backward")
    forward, backward = CALLS[backend]
    if phase != "backward":
        return partial(forward, q, k, v, bool(shape.causal), False)
    out = forward(q, k, v, bool(shape.causal), True)
    return partial(backward, gradient_of(out[0], pool), q, k, v, out, bool(shape.causal))


def gradient_of(out: Tensor, pool: Pool) -> Tensor:
    """Random data that lies in memory as the output does, as in training: flash would copy it otherwise."""
    order = sorted(range(out.dim()), key=out.stride, reverse=True)
    grad = pool.random([out.shape[dim] for dim in order], torch.bfloat16)
    return grad.permute([order.index(dim) for dim in range(out.dim())])


def check_offered(backend: str, shape: Shape, q: Tensor, k: Tensor, v: Tensor, gradient: bool) -> None:
    """Raise Unmeasurable where F.scaled_dot_product_attention would refuse this backend."""
    offered = {"flash": can_use_flash_attention, "cudnn": can_use_cudnn_attention}.get(backend)
    grouped = shape.heads != shape.kv_heads
    if offered is None:
        return
    if gradient:
        q, k, v = (tensor.detach().requires_grad_() for tensor in (q, k, v))
    if not offered(SDPAParams(q, k, v, None, 0.0, bool(shape.causal), grouped), False):
        raise Unmeasurable(f"torch does not offer {backend} attention for this shape")


Outputs = tuple[Tensor, ...]
Forward = Callable[[Tensor, Tensor, Tensor, bool, bool], Outputs]
Backward = Callable[[Tensor, Tensor, Tensor, Tensor, Outputs, bool], Outputs]


def flash(q: Tensor, k: Tensor, v: Tensor, causal: bool, training: bool) -> Outputs:
    found: Outputs = ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    return found


def flash_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Outputs, causal: bool) -> Outputs:
    found: Outputs = ATEN._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, *saved[:6], 0.0, causal, *saved[6:8]
    )
    return found


def cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool, training: bool) -> Outputs:
    found: Outputs = ATEN._scaled_dot_product_cudnn_attention(q, k, v, None, training, 0.0, causal)
    return found


def cudnn_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Outputs, causal: bool) -> Outputs:
    out, lse, cum_q, cum_k, max_q, max_k, seed, offset = saved[:8]
    found: Outputs = ATEN._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, out, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, causal
    )
    return found


def cpu(q: Tensor, k: Tensor, v: Tensor, causal: bool, training: bool) -> Outputs:
    found: Outputs = ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return found


def cpu_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Outputs, causal: bool) -> Outputs:
    found: Outputs = ATEN._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, *saved[:2], 0.0, causal)
    return found


CALLS: dict[str, tuple[Forward, Backward]] = {
    "flash": (flash, flash_backward),
    "cudnn": (cudnn, cudnn_backward),
    "cpu": (cpu, cpu_backward),
}


def windowed_call(pool: Pool, shape: Shape, phase: str) -> Call:
    """A causal sliding window: each query sees itself and the window - 1 keys before it."""
    q, k, v = (tensor.transpose(1, 2) for tensor in operands(pool, shape))
    sizes = (None, None, shape.seq_q, shape.seq_kv, 0.0, True)
    window = {"window_size_left": shape.window - 1, "window_size_right": 0}
    forward = partial(ATEN._flash_attention_forward, q, k, v, *sizes, False, **window)
    if phase != "backward":
        return forward
    out, lse, seed, offset, _ = forward()
    grad = pool.random(out.shape, torch.bfloat16)
    return partial(ATEN._flash_attention_backward, grad, q, k, v, out, lse, *sizes, seed, offset, **window)
