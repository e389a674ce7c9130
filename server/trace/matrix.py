"""Matrix products, convolutions and attention of a trace, as rows of an OperatorTable."""

from __future__ import annotations

from math import prod

import torch

from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Layout, Phase
from tilewise.server.operators.attention_kernel import Moved, backward_row, forward_row, pairs
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.experts import distinct_experts
from tilewise.server.operators.numbers import Number
from tilewise.server.trace.kernels import Operand, kernels
from tilewise.server.trace.recorder import Call

# names of the two operands in the schema of each product
PRODUCTS = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "_addmm_activation": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "addbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "dot": ("self", "tensor"),
    "_int_mm": ("self", "mat2"),
    "_scaled_mm": ("self", "mat2"),
    "_grouped_mm": ("self", "mat2"),
    "_scaled_grouped_mm": ("self", "mat2"),
}
CONVOLUTIONS = ("convolution", "convolution_backward")
PRECISIONS = {
    "float64": Precision.FP64,
    "bfloat16": Precision.BF16,
    "float16": Precision.FP16,
    "int8": Precision.INT8,
    "float4_e2m1fn_x2": Precision.NVFP4,
}


def is_product(name: str) -> bool:
    return name in PRODUCTS or name in CONVOLUTIONS or is_attention(name)


def is_attention(name: str) -> bool:
    return name in ("attention_forward", "attention_backward") or name.startswith("_scaled_dot_product_")


def precision_of(call: Call, operand: Operand) -> Precision:
    """Format of a product's inputs; of 8-bit floats, the scales say which."""
    if operand.dtype == "float32":
        return Precision.FP32 if torch.get_float32_matmul_precision() == "highest" else Precision.TF32
    if operand.dtype.startswith("float8"):
        scale = call.arguments.get("scale_a")
        if scale is not None and scale.dtype == "float8_e8m0fnu":
            return Precision.MXFP8
        return Precision.FP8 if scale is None or scale.numel == 1 else Precision.FP8_ROW
    return PRECISIONS.get(operand.dtype, Precision.FP64)


class Problem(Record):
    """y[m,n] = a[m,k] b[k,n], and how a and b lie."""

    m: int
    n: int
    k: int
    layout: Layout


def problem(a: Operand, b: Operand) -> Problem:
    """Sizes and layout of a product; the one that has no name of its own is its transpose's."""
    m, k = (1, *a.shape)[-2:]
    n = b.shape[-1] if len(b.shape) > 1 else 1
    along_k = a.stride[-1] == 1 or k == 1
    if len(b.shape) == 1 or b.stride[-2] == 1:
        return Problem(m, n, k, Layout.FORWARD) if along_k else Problem(n, m, k, Layout.INPUT_GRADIENT)
    return Problem(m, n, k, Layout.INPUT_GRADIENT if along_k else Layout.WEIGHT_GRADIENT)


def product(e: Emitter, name: str, call: Call) -> None:
    """A product of PRODUCTS."""
    a, b = (call.arguments[key] for key in PRODUCTS[call.name])
    precision, sizes = precision_of(call, a), problem(a, b)
    packed = 2 if a.dtype.endswith("_x2") else 1
    narrow = FORMATS[precision].bytes
    widths = (min(narrow, a.itemsize), min(narrow, b.itemsize), float(call.outs[0].itemsize))
    k = sizes.k * packed
    if call.name in ("_grouped_mm", "_scaled_grouped_mm") and len(a.shape) + len(b.shape) < 6:
        _grouped(e, name, call, a, b, sizes, k, precision, widths)
        return
    groups = prod(a.shape[:-2])
    e.gemm(
        name, sizes.m, sizes.n, k, precision=precision, widths=widths, layout=sizes.layout, direction=call.direction,
        groups=groups,
    )  # fmt: skip


def _grouped(
    e: Emitter,
    name: str,
    call: Call,
    a: Operand,
    b: Operand,
    sizes: Problem,
    k: int,
    precision: Precision,
    widths: tuple[float, float, float],
) -> None:
    """Rows of every group in one call: of the output (a is 2-D, b 3-D), or of the sum (both 2-D: weight gradients)."""
    groups: Number
    if len(a.shape) == 2 and len(b.shape) == 2:
        groups, layout, m, n = call.outs[0].shape[0], Layout.WEIGHT_GRADIENT, a.shape[0], b.shape[1]
    elif len(a.shape) == 2:
        groups = distinct_experts(b.shape[0], 1, a.shape[0])  # those with rows: the others' matrices are not read
        layout, m, n = sizes.layout, a.shape[0], b.shape[-1]
    else:
        groups, layout, m, n = a.shape[0], sizes.layout, b.shape[-1], a.shape[-2]
    e.grouped_gemm(name, m, n, k, groups, precision=precision, widths=widths, layout=layout, direction=call.direction)


def convolution(e: Emitter, name: str, call: Call) -> None:
    """A convolution as the products it contains; a depthwise one over a sequence as the kernel it is."""
    backward = call.name == "convolution_backward"
    arguments = call.arguments
    given, weight, groups = arguments["input"], arguments["weight"], arguments["groups"]
    result = arguments["grad_output"] if backward else call.outs[0]
    positions = given if arguments["transposed"] else result  # each does one product with the weight
    rows, inner = positions.shape[0] * prod(positions.shape[2:]), prod(weight.shape[1:])
    if groups == weight.shape[0] and weight.shape[1] == 1 and len(weight.shape) == 3:
        work = 2.0 * rows * groups * inner * (2 if backward else 1)
        read, written = (sum(x.size_bytes for x in side) for side in (call.ins, call.outs))
        e.memory(name, "conv1d", rows, groups, read, written, direction=call.direction, flops=work)
        return
    outer = weight.shape[0] // groups
    precision, widths = precision_of(call, given), (float(given.itemsize),) * 3
    ways: list[tuple[int, int, int, Layout]] = [(rows, outer, inner, Layout.FORWARD)]
    if backward:
        of_input, of_weight = (rows, inner, outer, Layout.INPUT_GRADIENT), (outer, inner, rows, Layout.WEIGHT_GRADIENT)
        ways = [way for way, wanted in zip((of_input, of_weight), arguments["output_mask"], strict=False) if wanted]
    for m, n, k, layout in ways:
        e.gemm(
            name, m, n, k, precision=precision, widths=widths, layout=layout, groups=groups, direction=call.direction
        )


def attention(e: Emitter, name: str, call: Call) -> None:
    """Attention each way. A mask's content is unknown on the meta device: every pair counts."""
    q, k, v = (call.arguments[key] for key in ("query", "key", "value"))
    causal = bool(call.arguments.get("is_causal", False))
    shape: dict[str, Number] = {
        "batch": prod(q.shape[:-3]),
        "heads": q.shape[-3],
        "kv_heads": k.shape[-3],
        "head_dim": q.shape[-1],
        "head_dim_v": v.shape[-1],
        "seq_q": q.shape[-2],
        "seq_kv": k.shape[-2],
        "causal": int(causal),
        "window": 0,
        "precision": precision_of(call, q),
    }
    computed = pairs(q.shape[-2], k.shape[-2], causal)
    scored = computed if e.keep else 0
    moved, launched = Moved.of(shape, q.itemsize, k.shape[-2]), kernels(call.name, call.ins, call.outs)
    if call.name.endswith("_backward"):
        backward_row(e, shape, moved, scored, computed, kernels=launched, name=name)
    else:
        forward_row(
            e, shape, moved, scored, computed, phase=Phase.FORWARD, direction=call.direction, kernels=launched,
            statistics=True, name=name,
        )  # fmt: skip
