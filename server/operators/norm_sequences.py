"""Kernels of each way to normalise, as sequences.py writes them."""

from __future__ import annotations

from msgspec.structs import replace

from tilewise.server.operators.numbers import Number, choose
from tilewise.server.operators.sequences import FROM_FP32, TO_FP32, Operands, Sequence, launch

_VARIANCE = (
    launch("pointwise.pow", "f", "f"),  # pow(2)
    launch("reduce", "f", "r"),  # mean
    launch("pointwise", "r", "r"),  # + eps
    launch("pointwise.rsqrt", "r", "r", special=1, special_per="row"),
    launch("mul.row", "fr", "f"),  # x * rsqrt
)
_VARIANCE_BACKWARD = (
    launch("mul", "ff", "f"),
    launch("mul.row", "fr", "f"),
    launch("reduce", "f", "r"),
    launch("pointwise", "rr", "r", times=3),  # rsqrt's derivative
    launch("pointwise.expand", "r", "f"),  # mean's: expand, then divide
    launch("copy", "f", "f"),  # pow(1)
    launch("pointwise", "f", "f"),  # * 2
    launch("mul", "ff", "f"),
    launch("add", "ff", "f"),
)
_RMS_PLAIN = Sequence((TO_FP32, *_VARIANCE, FROM_FP32), (TO_FP32, *_VARIANCE_BACKWARD, FROM_FP32), Operands.of("fr"))
_RMS_WEIGHTED = Sequence(  # Llama and most others: weight * x_hat, in the model's dtype
    (TO_FP32, *_VARIANCE, FROM_FP32, launch("mul.col", "aw", "a")),
    (
        launch("mul.col", "aw", "a"),
        launch("mul", "aa", "a"),
        launch("reduce_columns", "a", "w", kernels=2),
        TO_FP32,
        *_VARIANCE_BACKWARD,
        FROM_FP32,
    ),
    Operands.of("fra"),
)
_RMS_SHIFTED = Sequence(  # Gemma: x_hat * (1 + weight), in fp32
    (
        TO_FP32,
        *_VARIANCE,
        launch("cast", "w", "v", share=1),
        launch("pointwise", "v", "v"),
        launch("mul.col", "fv", "f"),
        FROM_FP32,
    ),
    (
        TO_FP32,
        launch("mul", "ff", "f"),
        launch("mul.col", "fv", "f"),
        launch("reduce_columns", "f", "v", kernels=2),
        launch("cast", "v", "w"),
        *_VARIANCE_BACKWARD,
        FROM_FP32,
    ),
    Operands.of("ffrv"),
)
_RMS_LATE = Sequence(  # OLMo 2: weight * x_hat in fp32, then cast
    (TO_FP32, *_VARIANCE, launch("mul.col", "fw", "f"), FROM_FP32),
    (
        TO_FP32,
        launch("mul.col", "fw", "f"),
        launch("mul", "ff", "f"),
        launch("reduce_columns", "f", "v", kernels=2),
        launch("cast", "v", "w"),
        *_VARIANCE_BACKWARD,
        FROM_FP32,
    ),
    Operands.of("ffr"),
)
_RMS_LIFTED = Sequence(  # Helium: the weight is lifted to fp32 first
    (TO_FP32, *_VARIANCE, launch("cast", "w", "v"), launch("mul.col", "fv", "f"), FROM_FP32),
    _RMS_SHIFTED.backward,
    Operands.of("ffrv"),
)
_LAYERNORM_WRITTEN = Sequence(  # Cohere: written out in fp32
    (
        TO_FP32,
        launch("reduce", "f", "r"),
        launch("pointwise_strided", "fr", "f"),  # less the mean, for the variance
        launch("pointwise.pow", "f", "f"),
        launch("reduce", "f", "r"),
        launch("pointwise_strided", "fr", "f"),
        launch("pointwise", "r", "r"),
        launch("pointwise.rsqrt", "r", "r", special=1, special_per="row"),
        launch("mul.row", "fr", "f"),
        launch("cast", "w", "v"),
        launch("mul.col", "fv", "f"),
        FROM_FP32,
    ),
    (
        TO_FP32,
        launch("mul.col", "fv", "f"),
        launch("mul", "ff", "f"),
        launch("reduce_columns", "f", "v", kernels=2),
        launch("cast", "v", "w"),
        launch("mul", "ff", "f"),
        launch("mul.row", "fr", "f"),
        launch("reduce", "f", "r"),
        launch("pointwise", "rr", "r", times=3),
        launch("pointwise", "f", "f", times=2),
        launch("reduce", "f", "r", times=2),
        launch("pointwise.expand", "r", "f", times=2),
        launch("copy", "f", "f"),
        launch("pointwise", "f", "f"),
        launch("mul", "ff", "f"),
        launch("add", "ff", "f", times=2),
        launch("pointwise", "rr", "r"),
        FROM_FP32,
    ),
    Operands.of("fffrr"),
)
_LAYERNORM_FP32 = Sequence(  # OLMo: without weights, in fp32
    (TO_FP32, launch("layernorm", "f", "frr"), FROM_FP32),
    (TO_FP32, launch("layernorm_backward", "ffrr", "f"), launch("fill", "", "v"), FROM_FP32),
    Operands.of("frr"),
)
_LAYERNORM_SHIFTED = Sequence(  # Nemotron: weight + 1
    (launch("pointwise", "w", "w"), launch("layernorm", "aww", "arr")),
    (launch("layernorm_backward", "aarrw", "aww", kernels=2),),
    Operands.of("arr"),
)
_LAYERNORM = Sequence(
    (launch("layernorm", "aww", "arr"),),
    (launch("layernorm_backward", "aarrw", "aww", kernels=2),),
    Operands.of("arr"),
)
# Inductor makes one kernel of a norm and of the residual addition before it, and recomputes x_hat in the backward;
# the weight's gradient takes kernels more, counted with it (`compiled`).
_RMS_FUSED = Sequence(
    (launch("rmsnorm.compiled", "aaw", "aar", special=1, special_per="row"),),
    (launch("rmsnorm_backward.compiled", "aaarw", "aw", kernels=3),),
    Operands.of("ar"),
)
_LAYERNORM_FUSED = Sequence(
    (launch("layernorm.compiled", "aaww", "aarr", special=1, special_per="row"),),
    (launch("layernorm_backward.compiled", "aaarrw", "aww", kernels=3),),
    Operands.of("arr"),
)


def compiled(fused: Sequence, rows: Number, cols: Number, joined: bool = False) -> Sequence:
    """One of inductor's norms with the kernels that it takes over rows x cols; joined: a kernel that follows rotates as well.

    A gradient along the rows and those of the parameters over the columns share one kernel where MixOrderReduction.can_fuse says so
    (torch/_inductor/scheduler.py); torch then sums each parameter's parts and casts the sum. Else a second kernel makes parts of all of them, and
    another for each parameter adds those up.
    """
    (forward,), (back,) = fused.forward, fused.backward
    parameters = back.written.column_a
    mixed = (rows * cols >= 5 * 2**20) & (rows >= 2 * cols) & (rows >= 4096) & (cols <= 16384)
    kernels = choose(mixed, 1 + 2 * parameters, 2 + parameters)
    first = replace(forward, kernels=0) if joined else forward
    return replace(fused, forward=(first,), backward=(replace(back, kernels=kernels),))


NORMS = {
    "rms": (_RMS_WEIGHTED, _RMS_FUSED),
    "rms_plain": (_RMS_PLAIN, _RMS_FUSED),
    "rms_shifted": (_RMS_SHIFTED, _RMS_FUSED),
    "rms_late": (_RMS_LATE, _RMS_FUSED),
    "rms_lifted": (_RMS_LIFTED, _RMS_FUSED),
    "layer": (_LAYERNORM, _LAYERNORM_FUSED),
    "layer_written": (_LAYERNORM_WRITTEN, _LAYERNORM_FUSED),
    "layer_fp32": (_LAYERNORM_FP32, _LAYERNORM_FUSED),
    "layer_shifted": (_LAYERNORM_SHIFTED, _LAYERNORM_FUSED),
}
