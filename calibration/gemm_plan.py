"""Which GEMMs are measured. Needs no torch, so that `calibrate run --list` costs none.

A GEMM computes y[m,n] over a contraction of k, in one of three kinds (how the operands lie):
fwd x[m,k] w[n,k]^T, dgrad x[m,k] w[k,n], wgrad x[k,m]^T w[k,n].
"""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tilewise.calibration.order import interleave, shuffled
from tilewise.calibration.protocol import SETS_MAX, Case, Level, Target
from tilewise.hwdb.times import State

COLUMNS = ("kind", "dtype", "m", "n", "k", "sets")


class Gemm(NamedTuple):
    kind: str
    dtype: str
    m: int
    n: int
    k: int

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k


class Format(NamedTuple):
    """peak: key in the SKU file; grain: what N and K must be multiples of for torch to accept them"""

    peak: str
    input_bytes: int
    output_bytes: int
    grain: int = 1
    rows_min: int = 1


DTYPES: dict[str, Format] = {
    "bf16": Format("bf16", 2, 2),
    "fp16": Format("fp16", 2, 2),
    "tf32": Format("tf32", 4, 4),
    "fp32": Format("fp32", 4, 4),
    "fp8": Format("fp8", 1, 2, grain=16),
    "fp8row": Format("fp8", 1, 2, grain=16),
    "int8": Format("int8", 1, 4, grain=8, rows_min=17),  # torch._int_mm wants more than 16 rows
    "mxfp8": Format("mxfp8", 1, 2, grain=32),
    "nvfp4": Format("nvfp4", 1, 2, grain=32),
}
# Share of the points. bf16 is what models are trained and served in; the others get enough to fit their own residual.
MIX: dict[tuple[str, str], float] = {
    ("fwd", "bf16"): 0.28, ("dgrad", "bf16"): 0.11, ("wgrad", "bf16"): 0.11,
    ("fwd", "fp16"): 0.06, ("dgrad", "fp16"): 0.02, ("wgrad", "fp16"): 0.02,
    ("fwd", "tf32"): 0.08, ("dgrad", "tf32"): 0.02, ("wgrad", "tf32"): 0.02,
    ("fwd", "fp32"): 0.05, ("dgrad", "fp32"): 0.02, ("wgrad", "fp32"): 0.02,
    ("fwd", "fp8"): 0.11, ("fwd", "fp8row"): 0.06, ("fwd", "int8"): 0.02,
    ("fwd", "mxfp8"): 0.06, ("fwd", "nvfp4"): 0.06,
}  # fmt: skip
ROUND_M: list[int] = [2**e for e in range(15)]
UNEVEN_M = [3, 5, 6, 12, 24, 48, 96, 160, 192, 320, 384, 640, 768, 1536, 3072, 6144, 12288]
ALIGNMENTS = [1, 2, 4, 8, 16, 32, 64, 128]
HEADS_SHARE, HEAD_S = 0.04, 1.2e-2  # of the points; odd ones take five times as long as planned
KERNEL_S = 5e-3  # the longest kernel of the plan, but for one point in thirty, which may take 15 ms
OPERAND_BYTES = 4e9
SUSTAINED: list[Gemm] = [
    *(Gemm("fwd", "bf16", m, n, k) for m, n, k in [
        (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (16384, 4096, 4096), (4096, 28672, 4096),
        (1024, 8192, 8192), (256, 8192, 8192), (32, 16384, 16384), (8192, 8192, 512), (4096, 4000, 4001),
    ]),
    Gemm("dgrad", "bf16", 8192, 4096, 14336), Gemm("wgrad", "bf16", 4096, 14336, 8192),
    Gemm("wgrad", "bf16", 1000, 4001, 8192), Gemm("fwd", "fp16", 8192, 8192, 8192),
    Gemm("fwd", "fp16", 4096, 4096, 4096), Gemm("fwd", "tf32", 8192, 8192, 8192), Gemm("fwd", "tf32", 2048, 4096, 4096),
    Gemm("fwd", "fp32", 4096, 4096, 4096), Gemm("fwd", "fp8", 8192, 8192, 8192), Gemm("fwd", "fp8", 4096, 4096, 4096),
    Gemm("fwd", "fp8", 256, 8192, 8192), Gemm("fwd", "fp8", 16384, 14336, 4096),
    Gemm("fwd", "fp8row", 8192, 8192, 8192), Gemm("fwd", "fp8row", 2048, 8192, 8192),
    Gemm("fwd", "int8", 8192, 8192, 8192), Gemm("fwd", "mxfp8", 8192, 8192, 8192),
    Gemm("fwd", "nvfp4", 8192, 8192, 8192),
]  # fmt: skip
TINY = [
    Gemm(kind, dtype, m, 64, 96)
    for kind in ("fwd", "dgrad", "wgrad")
    for dtype in ("bf16", "fp32")
    for m in (1, 17, 64)
]


def cases(target: Target, level: Level) -> list[Case]:
    """The points to time: burst points in a balanced order, sustained ones first."""
    if level is Level.TINY:
        return [case_of(gemm, target) for gemm in TINY]
    offered = _offered(target)
    held = [case_of(gemm, target, state=State.SUSTAINED) for gemm in SUSTAINED if gemm.dtype in offered]
    timed = [
        (share, _points(kind, dtype, target, round(14000 * share)))
        for (kind, dtype), share in MIX.items()
        if dtype in offered
    ]
    return held + interleave([*timed, (HEADS_SHARE, _heads(target))])


def census(target: Target, level: Level) -> list[Gemm]:
    """Shapes of which only the kernel's name is wanted: kernel choice is a function of the shape."""
    if level is Level.TINY:
        return []
    offered = _offered(target)
    groups = []
    for (kind, dtype), share in MIX.items():
        if dtype in offered:
            stream = _shapes(kind, dtype, target, random.Random(f"census {kind} {dtype}"), longest_s=1.2e-3)
            groups.append((share, _take(stream, round(20000 * share))))
    return interleave(groups)


# Share of the shapes of which the library's heuristic is asked (benchmarks/choices.py).
CHOICE_MIX: dict[tuple[str, str], float] = {
    ("fwd", "bf16"): 0.36, ("dgrad", "bf16"): 0.14, ("wgrad", "bf16"): 0.14, ("fwd", "fp16"): 0.04,
    ("fwd", "fp8"): 0.12, ("fwd", "fp8row"): 0.08,
    ("fwd", "tf32"): 0.06, ("dgrad", "tf32"): 0.01, ("wgrad", "tf32"): 0.01,
    ("fwd", "fp32"): 0.02, ("dgrad", "fp32"): 0.01, ("wgrad", "fp32"): 0.01,
}  # fmt: skip


def choices(target: Target, count: int) -> list[Gemm]:
    """Shapes for the library's heuristic, which costs no GPU time: of any size."""
    offered = _offered(target)
    groups = [
        (share, _take(_shapes(kind, dtype, target, random.Random(f"choice {kind} {dtype}"), 0.1), round(count * share)))
        for (kind, dtype), share in CHOICE_MIX.items()
        if dtype in offered
    ]
    return interleave(groups)


def case_of(gemm: Gemm, target: Target, state: State = State.BURST, sets_max: int = SETS_MAX) -> Case:
    """The case of a GEMM. `sets` is part of its key: small operands are faster when few sets rotate (from L2)."""
    size, peak = bytes_of(gemm), DTYPES[gemm.dtype].peak
    draft = Case(
        family="gemm",
        key={},
        estimate_s=estimate_s(gemm, target),
        bytes=size,
        flops=gemm.flops,
        peak=peak,
        state=state,
        sets_max=sets_max,
    )
    key = {**gemm._asdict(), "sets": draft.sets}
    return Case(
        family="gemm", key=key, estimate_s=draft.estimate_s, bytes=size, flops=gemm.flops, peak=peak, state=state,
        sets_max=sets_max,
    )  # fmt: skip


def bytes_of(gemm: Gemm) -> float:
    """Compulsory traffic of one call."""
    form = DTYPES[gemm.dtype]
    inputs = float(gemm.m * gemm.k + gemm.n * gemm.k) * form.input_bytes
    return inputs + float(gemm.m * gemm.n) * form.output_bytes


def estimate_s(gemm: Gemm, target: Target) -> float:
    """A roofline at 65 % of peak and 80 % of bandwidth: good enough to plan by."""
    peak = target.peaks.get(DTYPES[gemm.dtype].peak, (1e12, 0.0))[0]
    return max(gemm.flops / (0.65 * peak), bytes_of(gemm) / (0.8 * target.bandwidth_bytes_per_s), 3e-6)


def _offered(target: Target) -> set[str]:
    """Formats that this GPU has and torch offers for it."""
    fp4 = {"mxfp8", "nvfp4"} if target.arch.startswith("sm_10") else set()
    return {name for name, form in DTYPES.items() if form.peak in target.peaks and name not in {"mxfp8", "nvfp4"} - fp4}


def _points(kind: str, dtype: str, target: Target, count: int) -> list[Case]:
    """Timed points of one kind and format. Every eighth small one is repeated with as many sets as keep it out of L2."""
    generator = random.Random(f"gemm {kind} {dtype}")
    points: list[Case] = []
    for gemm in _take(_shapes(kind, dtype, target, generator, KERNEL_S), count):
        points.append(case_of(gemm, target))
        if points[-1].sets == SETS_MAX and generator.random() < 0.08:
            points.append(case_of(gemm, target, sets_max=256))
    return points


def _heads(target: Target) -> list[Case]:
    """Products of output layers as training has them: real vocabularies, padded ones and odd ones; long as they are."""
    draw = random.Random("heads")
    found: dict[Gemm, None] = {}
    for vocab, hidden in sorted(heads()) * 8:
        out = draw.choice((vocab, -(-vocab // 64) * 64, vocab // 64 * 64 + draw.choice(ALIGNMENTS)))
        kind, tokens = draw.choice(("fwd", "dgrad", "wgrad")), draw.choice((512, 1024, 2048, 4096, 4096, 8192))
        gemm = Gemm(kind, "bf16", *_oriented(kind, tokens, out, hidden))
        if estimate_s(gemm, target) <= HEAD_S and bytes_of(gemm) <= OPERAND_BYTES:
            found.setdefault(gemm)
    return [case_of(gemm, target) for gemm in shuffled(list(found), "heads")]


def _take(stream: Iterator[Gemm], count: int) -> list[Gemm]:
    found: dict[Gemm, None] = {}
    for _, gemm in zip(range(20 * count), stream, strict=False):
        found.setdefault(gemm)
        if len(found) >= count:
            break
    return list(found)


def _shapes(kind: str, dtype: str, target: Target, draw: random.Random, longest_s: float) -> Iterator[Gemm]:
    """An endless stream of shapes: real layers, random ones, alignment classes, steps across tile and wave edges, narrow ones."""
    sources = [_real, _random, _aligned, _stepped, _narrow]
    while True:
        source = draw.choices(sources, weights=(0.36, 0.20, 0.18, 0.12, 0.14))[0]
        m, n, k = source(kind, draw)
        gemm = _fit(Gemm(kind, dtype, m, n, k))
        limit = longest_s * (3 if draw.random() < 0.03 else 1)
        if estimate_s(gemm, target) <= limit and bytes_of(gemm) <= OPERAND_BYTES:
            yield gemm


def _fit(gemm: Gemm) -> Gemm:
    """Round to what the format demands."""
    form = DTYPES[gemm.dtype]
    n, k = (max(form.grain, round(size / form.grain) * form.grain) for size in (gemm.n, gemm.k))
    return gemm._replace(m=max(gemm.m, form.rows_min), n=n, k=k)


def _tokens(draw: random.Random, least: int = 1) -> int:
    """Rows of activations: round numbers as in training, the rest as prompts and batches of requests have them."""
    pick = draw.random()
    if pick < 0.40:
        return int(draw.choice([m for m in ROUND_M if m >= least]))
    if pick < 0.55:
        return draw.choice([m for m in UNEVEN_M if m >= least])
    return _log_uniform(draw, least, 16384)


def _log_uniform(draw: random.Random, low: int, high: int) -> int:
    exponent: float = draw.uniform(math.log(low), math.log(high))
    return round(math.exp(exponent))


def _oriented(kind: str, tokens: int, out: int, into: int) -> tuple[int, int, int]:
    """m, n, k of a layer [tokens, into] -> [tokens, out] in one of its three GEMMs."""
    if kind == "fwd":
        return tokens, out, into
    return (tokens, into, out) if kind == "dgrad" else (out, into, tokens)


def _real(kind: str, draw: random.Random) -> tuple[int, int, int]:
    out, into = draw.choice(layers())
    return _oriented(kind, _tokens(draw, 1 if kind == "fwd" else 64), out, into)


def _random(kind: str, draw: random.Random) -> tuple[int, int, int]:
    """Log-uniform sizes; both features share an alignment class in half of the cases."""
    classes = [draw.choice(ALIGNMENTS), draw.choice(ALIGNMENTS)]
    if draw.random() < 0.5:
        classes[1] = classes[0]
    wide = 160_000 if draw.random() < 0.15 else 32_768
    out, into = (
        max(step, _log_uniform(draw, 64, high) // step * step)
        for step, high in zip(classes, (wide, 32_768), strict=True)
    )
    return _oriented(kind, _log_uniform(draw, 1 if kind == "fwd" else 16, 16384), out, into)


def _aligned(kind: str, draw: random.Random) -> tuple[int, int, int]:
    """A real layer moved off its grid, so that N, K or both are a multiple of just one alignment class."""
    out, into = draw.choice(layers())
    step, which = draw.choice(ALIGNMENTS), draw.choice(("out", "into", "both"))
    if which != "into":
        out = out // 256 * 256 + step
    if which != "out":
        into = into // 256 * 256 + step
    tokens = draw.choice([m for m in ROUND_M if m >= 16])
    if kind == "wgrad" and draw.random() < 0.3:
        tokens = tokens // 256 * 256 + draw.choice(ALIGNMENTS)
    return _oriented(kind, tokens, out, into)


BASES = [(4096, 4096), (4096, 14336), (8192, 8192), (2048, 2048), (6144, 4096), (5120, 5120), (1024, 1024)]


def _stepped(kind: str, draw: random.Random) -> tuple[int, int, int]:
    """Fine steps of one size across tile and wave edges, the others fixed."""
    out, into = draw.choice(BASES)
    what = draw.choice(("tokens", "few tokens", "out", "into"))
    tokens = draw.choice((128, 512, 1024, 2048, 4096, 8192))
    if what == "tokens":
        tokens = 64 * draw.randint(1, 96) + draw.choice((-1, 0, 0, 1))  # beside a tile's edge as well
    elif what == "few tokens":
        tokens = draw.randint(1, 260)
    elif what == "out":
        out = 64 * draw.randint(2, 192)
    else:
        into = 64 * draw.randint(1, 160)
    return _oriented(kind, tokens, out, into)


def _narrow(kind: str, draw: random.Random) -> tuple[int, int, int]:
    """A layer with a side of a few features, and its gradients: routers, gates, adapters, heads of few classes."""
    side, (_, into) = draw.choice(narrow()), draw.choice(layers())
    out, into = (side, into) if draw.random() < 0.5 else (into, side)
    return _oriented(kind, _tokens(draw), out, into)


def heads() -> set[tuple[int, int]]:
    """(vocabulary, hidden) of every model in shapes.toml."""
    table = tomllib.loads(files("tilewise.calibration").joinpath("shapes.toml").read_text())
    return {(vocab, hidden) for _, hidden, *_, vocab, _ in table["models"]}


@cache
def narrow() -> list[int]:
    """Sides below a tile that layers have, in shapes.toml."""
    return list(tomllib.loads(files("tilewise.calibration").joinpath("shapes.toml").read_text())["narrow"])


@cache
def layers() -> list[tuple[int, int]]:
    """(out, in) features of every linear layer in shapes.toml under tensor parallelism 1, 2, 4, 8; each once."""
    table = tomllib.loads(files("tilewise.calibration").joinpath("shapes.toml").read_text())
    found: dict[tuple[int, int], None] = {}
    for _, hidden, ffn, heads, kv_heads, head_dim, vocab, gated in table["models"]:
        for tp in (1, 2, 4, 8):
            if heads % tp or ffn % tp:
                continue
            q, kv = heads // tp * head_dim, max(1, kv_heads // tp) * head_dim
            up = ffn // tp
            outs = [(q + 2 * kv, hidden), (q, hidden), (kv, hidden), (up * (1 + gated), hidden), (up, hidden)]
            heads_out = [(vocab // tp, hidden)] if vocab % tp == 0 else []
            for layer in [*outs, (hidden, q), (hidden, up), *heads_out]:
                found.setdefault(layer)
    return shuffled(list(found), "layers")
