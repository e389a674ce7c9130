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

from typing import Any

from tilewise.hwdb.record import Record
from tilewise.hwdb.table import kernel_codes


class Operands(Record):
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


class Launches(Record):
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
    kernels: Any = 1
    only_narrow: bool = False


def launch(kernel: str, read: str, written: str, **options: Any) -> Launches:
    """`kernel` is "op" or "op.variant"."""
    letters = read + written
    wide, whole = (
        letters.lstrip("i")[:1] in ("f", "r", "v"),
        options.pop("whole", any(letter in "afb" for letter in letters)),
    )
    return Launches(*kernel_codes(kernel), wide, whole, Operands.of(read), Operands.of(written), **options)


class Sequence(Record):
    """One operation: forward and backward kernels, and the operands autograd keeps between them."""

    forward: tuple[Launches, ...]
    backward: tuple[Launches, ...] = ()
    saved: Operands = Operands.of("")


TO_FP32 = launch("cast", "a", "f", only_narrow=True)
FROM_FP32 = launch("cast", "f", "a", only_narrow=True)


def _activation(variant: str, special: float = 1) -> Sequence:
    """An activation function that torch has a kernel for."""
    return Sequence(
        (launch(f"activation.{variant}", "a", "a", special=special),),
        (launch(f"activation_backward.{variant}", "aa", "a", special=special),),
        Operands.of("a"),
    )


ACTIVATIONS: dict[str, Sequence] = {
    "silu": _activation("silu"),
    "gelu": _activation("gelu"),
    "gelu_pytorch_tanh": _activation("gelu_tanh"),
    "relu": _activation("relu", special=0),
    "gelu_new": Sequence(  # written out in transformers: eight kernels
        (
            launch("pointwise", "a", "a", special=1),  # pow(3)
            launch("pointwise", "a", "a", times=3),
            launch("add", "aa", "a"),
            launch("pointwise", "a", "a", special=1),  # tanh
            launch("pointwise", "a", "a"),
            launch("mul", "aa", "a"),
        ),
        (
            launch("mul", "aa", "a", times=2),
            launch("pointwise", "a", "a", times=5),
            launch("mul", "aa", "a", times=2),
            launch("add", "aa", "a", times=2),
        ),
        Operands.of("aaaa"),
    ),
    "bloom_gelu": Sequence(  # BLOOM's own, whose backward works tanh out again
        (
            launch("pointwise", "a", "a", times=5),
            launch("pointwise", "a", "a", special=1),
            launch("mul", "aa", "a", times=3),
        ),
        (
            launch("pointwise", "a", "a", times=9),
            launch("pointwise", "a", "a", special=1),
            launch("mul", "aa", "a", times=7),
            launch("add", "aa", "a"),
        ),
        Operands.of("a"),
    ),
    "esm_gelu": Sequence(  # ESM's own: x / 2 (1 + erf(x / sqrt(2)))
        (
            launch("pointwise", "a", "a", times=3),
            launch("pointwise", "a", "a", special=1),
            launch("mul", "aa", "a"),
        ),
        (
            launch("mul", "aa", "a", times=3),
            launch("pointwise", "a", "a", times=5),
            launch("pointwise", "a", "a", special=1),
            launch("add", "aa", "a"),
        ),
        Operands.of("aaa"),
    ),
    "clamped_swiglu": Sequence(  # gpt-oss: (up + 1) gate sigmoid(1.7 gate), both clamped; what GATE does left out
        (
            launch("pointwise", "a", "a", times=4),
            launch("pointwise", "a", "a", special=1),
            launch("mul", "aa", "a"),
        ),
        (
            launch("mul", "aa", "a", times=2),
            launch("pointwise", "aa", "a"),
            launch("pointwise", "a", "a"),
            launch("add", "aa", "a"),
            launch("fill", "", "r", times=2),
            launch("pointwise", "a", "b", times=3),
            launch("pointwise", "ab", "a", times=2),
            launch("fill", "", "aa"),
            launch("transpose.slice_backward", "a", "a", times=2),
            launch("add", "aaaa", "aa"),
        ),
        Operands.of("aaaab"),
    ),
    "quick_gelu": Sequence(
        (launch("pointwise", "a", "a"), launch("pointwise", "a", "a", special=1), launch("mul", "aa", "a")),
        (launch("mul", "aa", "a", times=2), launch("activation_backward", "aa", "a"), launch("pointwise", "a", "a"),
         launch("add", "aa", "a")),
        Operands.of("aa"),
    ),
    "xielu": Sequence(  # Apertus: written out, with two learned numbers
        (
            launch("pointwise", "w", "w", times=3),
            launch("pointwise", "a", "b"),
            launch("pointwise", "a", "a", times=5),
            launch("pointwise", "a", "a", special=1),  # expm1
            launch("mul", "aa", "a"),
            launch("add", "aa", "a", times=3),
            launch("pointwise", "aab", "a"),
        ),
        (
            launch("fill", "", "w", times=2),
            launch("pointwise", "ab", "a", times=3),
            launch("pointwise", "a", "a", times=7),
            launch("mul", "aa", "a", times=5),
            launch("add", "aa", "a", times=5),
            launch("pointwise", "a", "b", times=2),
            launch("pointwise", "aab", "a"),
            launch("reduce", "a", "r", times=2),
            launch("pointwise", "w", "w", times=2),
        ),
        Operands.of("aaaaaabb"),
    ),
    "relu2": Sequence(
        (launch("activation", "a", "a"), launch("pointwise", "a", "a")),
        (launch("pointwise", "a", "a", times=2), launch("mul", "aa", "a"), launch("activation_backward", "aa", "a")),
        Operands.of("a"),
    ),
}  # fmt: skip
GATE = Sequence((launch("mul", "aa", "a"),), (launch("mul", "aa", "a", times=2),), Operands.of("aa"))
GATED_FUSED = Sequence(
    (launch("gated_activation.compiled", "aa", "a", special=1),),
    (launch("gated_activation_backward.compiled", "aaa", "aaa", special=1),),
    Operands.of("aa"),
)
ACTIVATION_FUSED = Sequence(
    (launch("activation.compiled", "a", "a", special=1),),
    (launch("activation_backward.compiled", "aa", "aa", special=1),),
    Operands.of("a"),
)
SHARED_GATE = Sequence(  # sigmoid of one value a token, times the shared experts' output
    (launch("pointwise", "r", "r", special=1, special_per="row"), launch("mul.row", "a", "a")),
    (
        launch("mul.row", "a", "a"),
        launch("mul", "aa", "a"),
        launch("reduce.sum_row", "a", "r"),
        launch("pointwise", "rr", "r"),
    ),
    Operands.of("a"),
)
SCALED_QUERIES = Sequence(  # Ministral 3, Llama 4: by the logarithm of the position, which every layer works out
    (launch("pointwise", "r", "r", times=6), launch("cast", "r", "r", whole=False), launch("mul.row", "ar", "a")),
    (launch("mul.row", "ar", "a"),),
    Operands.of("r"),
)
ATTENTION_GATE = Sequence(
    (launch("pointwise", "a", "a", special=1), launch("mul", "aa", "a")),
    (launch("mul", "aa", "a", times=2), launch("pointwise", "aa", "a")),
    Operands.of("aa"),
)
SCALE = Sequence((launch("pointwise", "a", "a"),), (launch("pointwise", "a", "a"),))
RESIDUAL = Sequence((launch("add", "aa", "a"),))
ACCUMULATE = (launch("add", "aa", "a"),)  # two gradients of one tensor meet
CONTIGUOUS = (launch("transpose", "a", "a"),)
LIFT = Sequence((TO_FP32,), (FROM_FP32,))
SOFTCAP = Sequence(
    (launch("pointwise", "a", "a"), launch("pointwise", "a", "a", special=1), launch("pointwise", "a", "a")),
    (launch("pointwise", "a", "a"), launch("mul", "aa", "a"), launch("pointwise", "a", "a")),
    Operands.of("a"),
)
CROSS_ENTROPY_NARROW = Sequence(  # in the model's own precision
    (launch("cross_entropy", "a", "a", special=1), launch("cross_entropy.nll", "ri", "r", whole=True)),
    (
        launch("fill", "", "r"),
        launch("cross_entropy_backward.nll", "i", "a", kernels=2),
        launch("cross_entropy_backward", "aa", "a", special=1),
    ),
    Operands.of("a"),
)
CROSS_ENTROPY = (
    Sequence(
        (TO_FP32, launch("cross_entropy", "f", "f", special=1), launch("cross_entropy.nll", "ri", "r", whole=True)),
        (
            launch("cross_entropy_backward.nll", "i", "f", kernels=2),  # a fill and one number a row
            launch("cross_entropy_backward", "ff", "f", special=1),
            FROM_FP32,
        ),
        Operands.of("f"),
    ),
    Sequence(
        (launch("cross_entropy.compiled", "ai", "rr", special=1, kernels=2),),
        # a gradient of zeros is filled first (the labels are shifted); the row's maximum and sum were kept
        (launch("fill", "", "a"), launch("pointwise", "aarri", "a", special=1)),
        Operands.of("arr"),
    ),
)
# A cast to a narrow format as torchao's Float8Linear makes it, read off torchao 0.16 operator by operator (emulated, on the CPU)
_LARGEST = (launch("pointwise", "a", "a"), launch("reduce", "a", "r"))  # abs, max
LARGEST = _LARGEST[1:]  # inductor's pass for the scale of a whole tensor
CAST_TENSOR = (
    *_LARGEST,
    launch("pointwise", "r", "r", times=6),  # fp64 and back, clamp, reciprocal
    launch("cast", "a", "f"),
    launch("pointwise", "f", "f", times=2),  # scale, clamp
    launch("cast", "f", "b"),
)
CAST_ROW = (
    *_LARGEST,
    launch("pointwise", "r", "r", times=9),  # the scale is a power of two besides
    launch("cast", "a", "f"),
    launch("mul.row", "fr", "f"),
    launch("pointwise", "f", "f"),
    launch("cast", "f", "b"),
)
CAST_TRANSPOSED = (launch("transpose", "b", "b"),)  # _scaled_mm reads its first operand by rows, its second by columns
