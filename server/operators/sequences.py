"""What each operation of a model launches on the GPU, kernel by kernel, and what autograd keeps of it.

Operands are written as letters, one letter an operand, over a matrix of rows x cols:

    a  activation element (2 bytes in 16-bit models)      f  fp32 element
    r  fp32 value per row (a variance)                     w  weight per column, of the activations' width
    v  fp32 value per column                               i  int64 per row
    b  one byte per element

"eager" is the code of transformers 5.17 as torch 2.11 runs it, one kernel per framework operator; "fused" is what
inductor makes of it. The sequences were read off transformers' source and checked against profiles of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewise.hwdb.table import kernel_codes


@dataclass(frozen=True, slots=True)
class Operands:
    """Bytes of a set of operands: per element, per row and per column, activation-wide and fixed-width apart."""

    element_a: int
    element: int
    row: int
    column_a: int
    column: int

    @classmethod
    def of(cls, letters: str) -> Operands:
        return cls(
            element_a=letters.count("a"),
            element=4 * letters.count("f") + letters.count("b"),
            row=4 * letters.count("r") + 8 * letters.count("i"),
            column_a=letters.count("w"),
            column=4 * letters.count("v"),
        )

    def bytes(self, rows: Any, cols: Any, elements: Any, width: int) -> Any:
        """Bytes of the operands over a matrix of rows x cols; sizes may be arrays."""
        total = elements * (self.element_a * width + self.element)
        if self.row:
            total = total + rows * self.row
        if self.column_a or self.column:
            total = total + cols * (self.column_a * width + self.column)
        return total


@dataclass(frozen=True, slots=True)
class Launches:
    """Kernels of one kind: `times` launches that each read and write these operands.

    op, variant: codes of the kernel; wide: its first operand is fp32 in every model
    whole:       it works on the matrix, not on one value a row or column
    share:       part of the columns it works on (half a head in a rotation)
    kernels:     GPU kernels one launch really is (2 where a memset clears a reduction's semaphores)
    only_narrow: exists only in 16-bit models (a cast to fp32 and back)
    """

    op: int
    variant: int
    wide: bool
    whole: bool
    read: Operands
    written: Operands
    times: int = 1
    share: float = 1
    special: float = 0
    special_per: str = "element"
    kernels: float = 1
    only_narrow: bool = False


def _launch(kernel: str, read: str, written: str, **options: Any) -> Launches:
    """`kernel` is "op" or "op.variant"."""
    letters = read + written
    wide, whole = (
        letters.lstrip("i")[:1] in ("f", "r", "v"),
        options.pop("whole", any(letter in "afb" for letter in letters)),
    )
    return Launches(*kernel_codes(kernel), wide, whole, Operands.of(read), Operands.of(written), **options)


@dataclass(frozen=True, slots=True)
class Sequence:
    """One operation: forward and backward kernels, and the operands autograd keeps between them."""

    forward: tuple[Launches, ...]
    backward: tuple[Launches, ...] = ()
    saved: Operands = field(default_factory=lambda: Operands.of(""))


_TO_FP32 = _launch("cast", "a", "f", only_narrow=True)
_FROM_FP32 = _launch("cast", "f", "a", only_narrow=True)
_VARIANCE = (
    _launch("pointwise.pow", "f", "f"),  # pow(2)
    _launch("reduce", "f", "r"),  # mean
    _launch("pointwise", "r", "r"),  # + eps
    _launch("pointwise.rsqrt", "r", "r", special=1, special_per="row"),
    _launch("mul.row", "fr", "f"),  # x * rsqrt
)
_VARIANCE_BACKWARD = (
    _launch("mul", "ff", "f"),
    _launch("mul.row", "fr", "f"),
    _launch("reduce", "f", "r"),
    _launch("pointwise", "rr", "r", times=3),  # rsqrt's derivative
    _launch("pointwise.expand", "r", "f"),  # mean's: expand, then divide
    _launch("copy", "f", "f"),  # pow(1)
    _launch("pointwise", "f", "f"),  # * 2
    _launch("mul", "ff", "f"),
    _launch("add", "ff", "f"),
)
_RMS_PLAIN = Sequence(
    (_TO_FP32, *_VARIANCE, _FROM_FP32), (_TO_FP32, *_VARIANCE_BACKWARD, _FROM_FP32), Operands.of("fr")
)
_RMS_WEIGHTED = Sequence(  # Llama and most others: weight * x_hat, in the model's dtype
    (_TO_FP32, *_VARIANCE, _FROM_FP32, _launch("mul.col", "aw", "a")),
    (
        _launch("mul.col", "aw", "a"),
        _launch("mul", "aa", "a"),
        _launch("reduce_columns", "a", "w", kernels=2),
        _TO_FP32,
        *_VARIANCE_BACKWARD,
        _FROM_FP32,
    ),
    Operands.of("fra"),
)
_RMS_SHIFTED = Sequence(  # Gemma: x_hat * (1 + weight), in fp32
    (
        _TO_FP32,
        *_VARIANCE,
        _launch("cast", "w", "v", share=1),
        _launch("pointwise", "v", "v"),
        _launch("mul.col", "fv", "f"),
        _FROM_FP32,
    ),
    (
        _TO_FP32,
        _launch("mul", "ff", "f"),
        _launch("mul.col", "fv", "f"),
        _launch("reduce_columns", "f", "v", kernels=2),
        _launch("cast", "v", "w"),
        *_VARIANCE_BACKWARD,
        _FROM_FP32,
    ),
    Operands.of("ffrv"),
)
_RMS_LATE = Sequence(  # OLMo 2: weight * x_hat in fp32, then cast
    (_TO_FP32, *_VARIANCE, _launch("mul.col", "fw", "f"), _FROM_FP32),
    (
        _TO_FP32,
        _launch("mul.col", "fw", "f"),
        _launch("mul", "ff", "f"),
        _launch("reduce_columns", "f", "v", kernels=2),
        _launch("cast", "v", "w"),
        *_VARIANCE_BACKWARD,
        _FROM_FP32,
    ),
    Operands.of("ffr"),
)
_RMS_LIFTED = Sequence(  # Helium: the weight is lifted to fp32 first
    (_TO_FP32, *_VARIANCE, _launch("cast", "w", "v"), _launch("mul.col", "fv", "f"), _FROM_FP32),
    _RMS_SHIFTED.backward,
    Operands.of("ffrv"),
)
_LAYERNORM_WRITTEN = Sequence(  # Cohere: written out in fp32
    (
        _TO_FP32,
        _launch("reduce", "f", "r"),
        _launch("pointwise_strided", "fr", "f"),  # less the mean, for the variance
        _launch("pointwise.pow", "f", "f"),
        _launch("reduce", "f", "r"),
        _launch("pointwise_strided", "fr", "f"),
        _launch("pointwise", "r", "r"),
        _launch("pointwise.rsqrt", "r", "r", special=1, special_per="row"),
        _launch("mul.row", "fr", "f"),
        _launch("cast", "w", "v"),
        _launch("mul.col", "fv", "f"),
        _FROM_FP32,
    ),
    (
        _TO_FP32,
        _launch("mul.col", "fv", "f"),
        _launch("mul", "ff", "f"),
        _launch("reduce_columns", "f", "v", kernels=2),
        _launch("cast", "v", "w"),
        _launch("mul", "ff", "f"),
        _launch("mul.row", "fr", "f"),
        _launch("reduce", "f", "r"),
        _launch("pointwise", "rr", "r", times=3),
        _launch("pointwise", "f", "f", times=2),
        _launch("reduce", "f", "r", times=2),
        _launch("pointwise.expand", "r", "f", times=2),
        _launch("copy", "f", "f"),
        _launch("pointwise", "f", "f"),
        _launch("mul", "ff", "f"),
        _launch("add", "ff", "f", times=2),
        _launch("pointwise", "rr", "r"),
        _FROM_FP32,
    ),
    Operands.of("fffrr"),
)
_LAYERNORM_FP32 = Sequence(  # OLMo: without weights, in fp32
    (_TO_FP32, _launch("layernorm", "f", "frr"), _FROM_FP32),
    (_TO_FP32, _launch("layernorm_backward", "ffrr", "f"), _launch("fill", "", "v"), _FROM_FP32),
    Operands.of("frr"),
)
_LAYERNORM_SHIFTED = Sequence(  # Nemotron: weight + 1
    (_launch("pointwise", "w", "w"), _launch("layernorm", "aww", "arr")),
    (_launch("layernorm_backward", "aarrw", "aww", kernels=2),),
    Operands.of("arr"),
)
_LAYERNORM = Sequence(
    (_launch("layernorm", "aww", "arr"),),
    (_launch("layernorm_backward", "aarrw", "aww", kernels=2),),
    Operands.of("arr"),
)
# Inductor makes one kernel of a norm and of the residual addition before it, and recomputes x_hat in the backward;
# the weight's gradient takes two kernels more, counted with it.
_RMS_FUSED = Sequence(
    (_launch("rmsnorm.compiled", "aaw", "aar", special=1, special_per="row"),),
    (_launch("rmsnorm_backward.compiled", "aaarw", "aw", kernels=3),),
    Operands.of("ar"),
)
_LAYERNORM_FUSED = Sequence(
    (_launch("layernorm.compiled", "aaww", "aarr", special=1, special_per="row"),),
    (_launch("layernorm_backward.compiled", "aaarrw", "aww", kernels=3),),
    Operands.of("arr"),
)

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

_ROTATE = (
    _launch("rope.mul", "a", "a"),  # x * cos
    _launch("rope.neg", "a", "a", share=0.5),
    _launch("rope.cat", "a", "a"),
    _launch("rope.mul", "a", "a"),  # * sin
    _launch("rope.add", "aa", "a"),
)
_SLICE_BACKWARD = (_launch("fill", "", "a"), _launch("transpose.slice_backward", "a", "a", share=0.5))
_ROTATE_BACKWARD = (
    _launch("rope.mul", "a", "a"),
    _launch("rope.neg", "a", "a", share=0.5),
    *_SLICE_BACKWARD,
    *_SLICE_BACKWARD,
    _launch("add", "aa", "a"),
    _launch("rope.mul", "a", "a"),
    _launch("rope.add", "aa", "a"),
)
_ROTATE_FP32 = (  # OLMo: angles in fp32 lift the products
    _launch("rope.mul", "a", "f"),
    _launch("rope.neg", "a", "a", share=0.5),
    _launch("rope.cat", "a", "a"),
    _launch("rope.mul", "a", "f"),
    _launch("rope.add", "ff", "f"),
    _FROM_FP32,
)
_ROTATE_FP32_BACKWARD = (
    _TO_FP32,
    _launch("rope.mul", "f", "f", times=2),
    _launch("cast", "f", "a", times=2),
    _launch("rope.neg", "a", "a", share=0.5),
    *_SLICE_BACKWARD,
    *_SLICE_BACKWARD,
    _launch("add", "aa", "a"),
    _launch("rope.add", "aa", "a"),
)
_ROPE_FUSED = Sequence((_launch("rope.compiled", "a", "a"),), (_launch("rope.compiled", "a", "a"),))
_ROTATE_LIFTED = (  # Cohere: the heads in fp32
    _TO_FP32,
    _launch("rope.mul", "f", "f"),
    _launch("rope.neg", "f", "f", share=0.5),
    _launch("rope.cat", "f", "f"),
    _launch("rope.mul", "f", "f"),
    _launch("rope.add", "ff", "f"),
    _FROM_FP32,
)
_SLICE_BACKWARD_FP32 = (_launch("fill", "", "f"), _launch("transpose.slice_backward", "f", "f", share=0.5))
_ROTATE_LIFTED_BACKWARD = (
    _TO_FP32,
    _launch("rope.mul", "f", "f", times=2),
    _launch("rope.neg", "f", "f", share=0.5),
    *_SLICE_BACKWARD_FP32,
    *_SLICE_BACKWARD_FP32,
    _launch("rope.add", "ff", "f", times=2),
    _FROM_FP32,
)
_ROTATE_LIFTED_TWICE = (_TO_FP32, *_ROTATE_LIFTED)  # ESM, ModernBERT: each factor apart
_ROTATE_LIFTED_TWICE_BACKWARD = (
    _TO_FP32,
    _launch("rope.mul", "f", "f", times=2),
    _launch("rope.neg", "f", "f", share=0.5),
    *_SLICE_BACKWARD_FP32,
    *_SLICE_BACKWARD_FP32,
    _launch("rope.add", "ff", "f"),
    _FROM_FP32,
    _FROM_FP32,
    _launch("rope.add", "aa", "a"),
)
_ROTATE_FACTORS_LIFTED = (  # ERNIE 4.5: both factors in fp32, the rotated half made in 16 bit
    _TO_FP32,
    _launch("rope.mul", "f", "f"),
    _launch("rope.neg", "a", "a", share=0.5),
    _launch("rope.cat", "a", "a"),
    _TO_FP32,
    _launch("rope.mul", "f", "f"),
    _launch("rope.add", "ff", "f"),
    _FROM_FP32,
)
_ROTATE_COMPLEX = (_TO_FP32, _launch("rope.mul", "f", "f"), _FROM_FP32)  # Llama 4: as complex numbers
_ROTATE_COMPLEX_BACKWARD = (_TO_FP32, _launch("copy", "r", "r", whole=False), _launch("rope.mul", "f", "f"), _FROM_FP32)
_ROTATE_HALVES = (  # gpt-oss: both halves turned by themselves
    _launch("rope.mul", "a", "a", times=4, share=0.5),
    _launch("rope.add", "aa", "a", times=2, share=0.5),
    _launch("rope.cat", "a", "a"),
)
_ROTATE_HALVES_BACKWARD = (
    _launch("rope.mul", "a", "a", times=4, share=0.5),
    _launch("rope.neg", "a", "a", share=0.5),
    _launch("rope.add", "aa", "a", times=2, share=0.5),
    _launch("rope.cat", "a", "a"),
)
_ROTATE_INTERLEAVED_BACKWARD = (  # DeepSeek V3: every other element instead of half a head
    *_ROTATE_HALVES_BACKWARD[:-1],
    *_SLICE_BACKWARD,
    *_SLICE_BACKWARD,
    _launch("add", "aa", "a"),
)
ROPES = {
    "": (Sequence(_ROTATE, _ROTATE_BACKWARD), _ROPE_FUSED),
    "fp32": (Sequence(_ROTATE_FP32, _ROTATE_FP32_BACKWARD), _ROPE_FUSED),
    "lifted": (Sequence(_ROTATE_LIFTED, _ROTATE_LIFTED_BACKWARD), _ROPE_FUSED),
    "lifted_twice": (Sequence(_ROTATE_LIFTED_TWICE, _ROTATE_LIFTED_TWICE_BACKWARD), _ROPE_FUSED),
    "factors_lifted": (Sequence(_ROTATE_FACTORS_LIFTED, _ROTATE_FP32_BACKWARD), _ROPE_FUSED),
    "complex": (Sequence(_ROTATE_COMPLEX, _ROTATE_COMPLEX_BACKWARD), _ROPE_FUSED),
    "halves": (Sequence(_ROTATE_HALVES, _ROTATE_HALVES_BACKWARD), _ROPE_FUSED),
    "interleaved": (Sequence(_ROTATE_HALVES, _ROTATE_INTERLEAVED_BACKWARD), _ROPE_FUSED),
}
# Partial rotation: the rotated and the untouched part are concatenated; columns are the whole head.
ROPE_JOIN = Sequence((_launch("rope.cat", "a", "a"),), (*_SLICE_BACKWARD, *_SLICE_BACKWARD, _launch("add", "aa", "a")))

# Phi 3 concatenates even where nothing is left untouched: an empty part comes back as zeros.
ROPE_JOIN_NOTHING = Sequence((_launch("rope.cat", "a", "a"),), (_launch("fill", "", "a"), _launch("add", "aa", "a")))


def _activation(variant: str, special: float = 1) -> Sequence:
    """An activation function that torch has a kernel for."""
    return Sequence(
        (_launch(f"activation.{variant}", "a", "a", special=special),),
        (_launch(f"activation_backward.{variant}", "aa", "a", special=special),),
        Operands.of("a"),
    )


ACTIVATIONS: dict[str, Sequence] = {
    "silu": _activation("silu"),
    "gelu": _activation("gelu"),
    "gelu_pytorch_tanh": _activation("gelu_tanh"),
    "relu": _activation("relu", special=0),
    "gelu_new": Sequence(  # written out in transformers: eight kernels
        (
            _launch("pointwise", "a", "a", special=1),  # pow(3)
            _launch("pointwise", "a", "a", times=3),
            _launch("add", "aa", "a"),
            _launch("pointwise", "a", "a", special=1),  # tanh
            _launch("pointwise", "a", "a"),
            _launch("mul", "aa", "a"),
        ),
        (
            _launch("mul", "aa", "a", times=2),
            _launch("pointwise", "a", "a", times=5),
            _launch("mul", "aa", "a", times=2),
            _launch("add", "aa", "a", times=2),
        ),
        Operands.of("aaaa"),
    ),
    "bloom_gelu": Sequence(  # BLOOM's own, whose backward works tanh out again
        (
            _launch("pointwise", "a", "a", times=5),
            _launch("pointwise", "a", "a", special=1),
            _launch("mul", "aa", "a", times=3),
        ),
        (
            _launch("pointwise", "a", "a", times=9),
            _launch("pointwise", "a", "a", special=1),
            _launch("mul", "aa", "a", times=7),
            _launch("add", "aa", "a"),
        ),
        Operands.of("a"),
    ),
    "esm_gelu": Sequence(  # ESM's own: x / 2 (1 + erf(x / sqrt(2)))
        (
            _launch("pointwise", "a", "a", times=3),
            _launch("pointwise", "a", "a", special=1),
            _launch("mul", "aa", "a"),
        ),
        (
            _launch("mul", "aa", "a", times=3),
            _launch("pointwise", "a", "a", times=5),
            _launch("pointwise", "a", "a", special=1),
            _launch("add", "aa", "a"),
        ),
        Operands.of("aaa"),
    ),
    "clamped_swiglu": Sequence(  # gpt-oss: (up + 1) gate sigmoid(1.7 gate), both clamped; what GATE does left out
        (
            _launch("pointwise", "a", "a", times=4),
            _launch("pointwise", "a", "a", special=1),
            _launch("mul", "aa", "a"),
        ),
        (
            _launch("mul", "aa", "a", times=2),
            _launch("pointwise", "aa", "a"),
            _launch("pointwise", "a", "a"),
            _launch("add", "aa", "a"),
            _launch("fill", "", "r", times=2),
            _launch("pointwise", "a", "b", times=3),
            _launch("pointwise", "ab", "a", times=2),
            _launch("fill", "", "aa"),
            _launch("transpose.slice_backward", "a", "a", times=2),
            _launch("add", "aaaa", "aa"),
        ),
        Operands.of("aaaab"),
    ),
    "quick_gelu": Sequence(
        (_launch("pointwise", "a", "a"), _launch("pointwise", "a", "a", special=1), _launch("mul", "aa", "a")),
        (_launch("mul", "aa", "a", times=2), _launch("activation_backward", "aa", "a"), _launch("pointwise", "a", "a"),
         _launch("add", "aa", "a")),
        Operands.of("aa"),
    ),
    "xielu": Sequence(  # Apertus: written out, with two learned numbers
        (
            _launch("pointwise", "w", "w", times=3),
            _launch("pointwise", "a", "b"),
            _launch("pointwise", "a", "a", times=5),
            _launch("pointwise", "a", "a", special=1),  # expm1
            _launch("mul", "aa", "a"),
            _launch("add", "aa", "a", times=3),
            _launch("pointwise", "aab", "a"),
        ),
        (
            _launch("fill", "", "w", times=2),
            _launch("pointwise", "ab", "a", times=3),
            _launch("pointwise", "a", "a", times=7),
            _launch("mul", "aa", "a", times=5),
            _launch("add", "aa", "a", times=5),
            _launch("pointwise", "a", "b", times=2),
            _launch("pointwise", "aab", "a"),
            _launch("reduce", "a", "r", times=2),
            _launch("pointwise", "w", "w", times=2),
        ),
        Operands.of("aaaaaabb"),
    ),
    "relu2": Sequence(
        (_launch("activation", "a", "a"), _launch("pointwise", "a", "a")),
        (_launch("pointwise", "a", "a", times=2), _launch("mul", "aa", "a"), _launch("activation_backward", "aa", "a")),
        Operands.of("a"),
    ),
}  # fmt: skip
GATE = Sequence((_launch("mul", "aa", "a"),), (_launch("mul", "aa", "a", times=2),), Operands.of("aa"))
GATED_FUSED = Sequence(
    (_launch("gated_activation.compiled", "aa", "a", special=1),),
    (_launch("gated_activation_backward.compiled", "aaa", "aaa", special=1),),
    Operands.of("aa"),
)
ACTIVATION_FUSED = Sequence(
    (_launch("activation.compiled", "a", "a", special=1),),
    (_launch("activation_backward.compiled", "aa", "aa", special=1),),
    Operands.of("a"),
)
SHARED_GATE = Sequence(  # sigmoid of one value a token, times the shared experts' output
    (_launch("pointwise", "r", "r", special=1, special_per="row"), _launch("mul.row", "a", "a")),
    (
        _launch("mul.row", "a", "a"),
        _launch("mul", "aa", "a"),
        _launch("reduce.sum_row", "a", "r"),
        _launch("pointwise", "rr", "r"),
    ),
    Operands.of("a"),
)
SCALED_QUERIES = Sequence(  # Ministral 3, Llama 4: by the logarithm of the position, which every layer works out
    (_launch("pointwise", "r", "r", times=6), _launch("cast", "r", "r", whole=False), _launch("mul.row", "ar", "a")),
    (_launch("mul.row", "ar", "a"),),
    Operands.of("r"),
)
ATTENTION_GATE = Sequence(
    (_launch("pointwise", "a", "a", special=1), _launch("mul", "aa", "a")),
    (_launch("mul", "aa", "a", times=2), _launch("pointwise", "aa", "a")),
    Operands.of("aa"),
)
SCALE = Sequence((_launch("pointwise", "a", "a"),), (_launch("pointwise", "a", "a"),))
RESIDUAL = Sequence((_launch("add", "aa", "a"),))
ACCUMULATE = (_launch("add", "aa", "a"),)  # two gradients of one tensor meet
CONTIGUOUS = (_launch("transpose", "a", "a"),)
LIFT = Sequence((_TO_FP32,), (_FROM_FP32,))
_MASK = _launch("pointwise_strided", "a", "a")
_MASK_FP32 = _launch("pointwise_strided", "f", "f")
_SOFTMAX_FP32 = _launch("softmax", "f", "f", special=1)
_SOFTMAX_FP32_BACKWARD = _launch("softmax_backward", "ff", "f")
# Attention written out in a family's own code: what happens to the scores, queries x keys, between the two products
SCORES: dict[str, Sequence] = {
    "sinks": Sequence(  # gpt-oss: a column of sinks beside the keys, the largest score taken off, softmax in 16 bit
        (
            _launch("pointwise", "a", "a"),
            _MASK,
            _launch("cat", "a", "a"),
            _launch("reduce", "a", "i"),
            _launch("pointwise_strided", "a", "a"),
            _launch("softmax", "a", "a", special=1),
        ),
        (
            _launch("fill", "", "a"),
            _launch("transpose.slice_backward", "a", "a"),
            _launch("softmax_backward", "aa", "a"),
            _launch("pointwise", "a", "a"),
            _launch("reduce", "a", "r"),
            _launch("fill", "", "a"),
            _launch("scatter_add", "i", "r"),
            _launch("add", "aa", "a"),
            _launch("pointwise", "a", "a"),
            _launch("reduce", "r", "", whole=False),
        ),
        Operands.of("aai"),
    ),
    "alibi": Sequence(  # BLOOM: the product adds the positions itself
        (_MASK, _TO_FP32, _SOFTMAX_FP32, _FROM_FP32), (_TO_FP32, _SOFTMAX_FP32_BACKWARD, _FROM_FP32), Operands.of("fa")
    ),
    "alibi_fp32": Sequence(  # MPT: positions in fp32 lift the scores
        (
            _launch("pointwise", "a", "a"),
            _launch("pointwise_strided", "a", "f"),
            _launch("copy", "f", "f"),
            _MASK_FP32,
            _SOFTMAX_FP32,
            _FROM_FP32,
        ),
        (
            _TO_FP32,
            _SOFTMAX_FP32_BACKWARD,
            _launch("copy", "f", "f"),
            _MASK_FP32,
            _FROM_FP32,
            _launch("pointwise", "a", "a"),
        ),
        Operands.of("fa"),
    ),
    "fp32": Sequence(  # GPT-J, CodeGen: scores of fp32 queries and keys
        (_launch("pointwise", "f", "f"), _MASK_FP32, _SOFTMAX_FP32, _FROM_FP32),
        (_TO_FP32, _SOFTMAX_FP32_BACKWARD, _launch("pointwise", "f", "f")),
        Operands.of("fa"),
    ),
    "fp32_where": Sequence(  # GPT-Neo: not scaled, masked twice
        (_MASK_FP32, _MASK_FP32, _SOFTMAX_FP32, _FROM_FP32),
        (_TO_FP32, _SOFTMAX_FP32_BACKWARD, _MASK_FP32),
        Operands.of("fa"),
    ),
    "clamped": Sequence(  # XGLM: kept above the least number
        (_MASK, _launch("fill", "", "r"), _launch("pointwise", "a", "a"), _launch("softmax", "a", "a", special=1)),
        (
            _launch("softmax_backward", "aa", "a"),
            _launch("pointwise", "a", "b", times=2),
            _launch("pointwise", "a", "a"),
            _launch("pointwise", "ab", "a"),
            _launch("pointwise", "aab", "a"),
        ),
        Operands.of("aa"),
    ),
}
SOFTCAP = Sequence(
    (_launch("pointwise", "a", "a"), _launch("pointwise", "a", "a", special=1), _launch("pointwise", "a", "a")),
    (_launch("pointwise", "a", "a"), _launch("mul", "aa", "a"), _launch("pointwise", "a", "a")),
    Operands.of("a"),
)
CROSS_ENTROPY_NARROW = Sequence(  # in the model's own precision
    (_launch("cross_entropy", "a", "a", special=1), _launch("cross_entropy.nll", "ri", "r", whole=True)),
    (
        _launch("fill", "", "r"),
        _launch("cross_entropy_backward.nll", "i", "a", kernels=2),
        _launch("cross_entropy_backward", "aa", "a", special=1),
    ),
    Operands.of("a"),
)
CROSS_ENTROPY = (
    Sequence(
        (_TO_FP32, _launch("cross_entropy", "f", "f", special=1), _launch("cross_entropy.nll", "ri", "r", whole=True)),
        (
            _launch("cross_entropy_backward.nll", "i", "f", kernels=2),  # a fill and one number a row
            _launch("cross_entropy_backward", "ff", "f", special=1),
            _FROM_FP32,
        ),
        Operands.of("f"),
    ),
    Sequence(
        (_launch("cross_entropy.compiled", "ai", "rr", special=1, kernels=2),),
        # a gradient of zeros is filled first (the labels are shifted); the row's maximum and sum were kept
        (_launch("fill", "", "a"), _launch("pointwise", "aarri", "a", special=1)),
        Operands.of("arr"),
    ),
)
# A cast to a narrow format as torchao's Float8Linear makes it, read off torchao 0.16 operator by operator (emulated, on the CPU)
_LARGEST = (_launch("pointwise", "a", "a"), _launch("reduce", "a", "r"))  # abs, max
LARGEST = _LARGEST[1:]  # inductor's pass for the scale of a whole tensor
CAST_TENSOR = (
    *_LARGEST,
    _launch("pointwise", "r", "r", times=6),  # fp64 and back, clamp, reciprocal
    _launch("cast", "a", "f"),
    _launch("pointwise", "f", "f", times=2),  # scale, clamp
    _launch("cast", "f", "b"),
)
CAST_ROW = (
    *_LARGEST,
    _launch("pointwise", "r", "r", times=9),  # the scale is a power of two besides
    _launch("cast", "a", "f"),
    _launch("mul.row", "fr", "f"),
    _launch("pointwise", "f", "f"),
    _launch("cast", "f", "b"),
)
CAST_TRANSPOSED = (_launch("transpose", "b", "b"),)  # _scaled_mm reads its first operand by rows, its second by columns


@dataclass(frozen=True, slots=True)
class Router:
    """From logits to scores of experts, tokens x experts; small: further kernels over the chosen experts alone.

    in_place: the chosen weights are divided by their sum in place, of which autograd sees nothing
    """

    scores: Sequence
    small: int = 0
    small_backward: int = 0
    in_place: bool = False


_SIGMOID = (
    _launch("pointwise", "f", "f", special=1),
    _launch("pointwise", "f", "f"),
)  # and a bias that corrects the choice
_BEST_GROUPS = (  # two best experts of each group, the best groups, a mask over the experts of the others
    _launch("topk", "f", "r", kernels=2),
    _launch("reduce", "r", "r"),
    _launch("topk", "r", "r", kernels=2),
    _launch("fill", "", "r"),
    _launch("scatter_add", "r", "r"),
    _launch("cast", "f", "b"),
    _launch("pointwise", "b", "b"),
    _launch("copy", "f", "f"),
    _launch("mul.row", "fb", "f"),
)
_SPARSE_MIXER = (  # PhiMoE: for each of two experts
    _launch("reduce", "a", "i"),
    _launch("pointwise", "a", "a", times=2),
    _launch("pointwise_strided", "a", "a"),
    _launch("pointwise", "aa", "a"),
    _launch("pointwise", "a", "b"),
    _launch("copy", "a", "a"),
    _launch("mul.row", "ab", "a"),
    _launch("softmax", "a", "a", special=1),
    _launch("gather", "i", "r"),
)
_SPARSE_MIXER_BACKWARD = (
    _launch("fill", "", "a"),
    _launch("scatter_add", "i", "r"),
    _launch("softmax_backward", "aa", "a"),
    _launch("copy", "a", "a"),
    _launch("mul.row", "ab", "a"),
)
ROUTERS = {
    "chosen": Router(Sequence(()), 1, 1),  # gpt-oss: the best logits, and a softmax over them alone
    "sparse_mixer": Router(
        Sequence(
            (*_SPARSE_MIXER, *_SPARSE_MIXER, _launch("copy", "a", "a")),
            (*_SPARSE_MIXER_BACKWARD, *_SPARSE_MIXER_BACKWARD, _launch("copy", "a", "a"), _launch("add", "aa", "a")),
        )
    ),
    "softmax": Router(
        Sequence(
            (_TO_FP32, _launch("softmax", "f", "f", special=1)), (_launch("softmax_backward", "ff", "f"), _FROM_FP32)
        )
    ),
    "sigmoid": Router(Sequence((_TO_FP32, *_SIGMOID), (_launch("pointwise", "ff", "f"), _FROM_FP32)), 2, 1, True),
    "groups": Router(Sequence((*_SIGMOID, *_BEST_GROUPS), (_launch("pointwise", "ff", "f"),)), 3, 2, True),
    "softmax_groups": Router(
        Sequence((_launch("softmax", "a", "a", special=1), *_BEST_GROUPS), (_launch("softmax_backward", "aa", "a"),)),
        3,
        2,
    ),
}
