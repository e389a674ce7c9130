"""OperatorTable: the one structure in which work travels from the server to the kernel models.

A structure of arrays, one row an operator. Repeats are a count, not copies; a thousand candidate shapes are one table
whose rows say which shape they belong to. Everything numeric is a numpy array of the same length `len(table)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.record import Record

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Kind(IntEnum):
    """Which kernel model answers for a row. Stored in tables; never renumber."""

    GEMM = 0
    GROUPED_GEMM = 1
    ATTENTION = 2
    MEMORY = 3
    COLLECTIVE = 4


class Layout(IntEnum):
    """How a GEMM's operands lie: y[m,n] = x[m,k] w[n,k]^T and its two gradients."""

    FORWARD = 0  # TN: both contiguous along k
    INPUT_GRADIENT = 1  # NN: x[m,k] @ w[k,n], w contiguous along n
    WEIGHT_GRADIENT = 2  # NT: x[k,m]^T @ w[k,n], both contiguous along the output


class Phase(IntEnum):
    """Which attention kernel a row is."""

    FORWARD = 0
    BACKWARD = 1
    DECODE = 2  # seq_q new tokens against seq_kv cached ones


# Names of memory-bound and collective operators, as calibrations measure them (one benchmark each) and as
# server/operators emits them. A row's `op` is the index into this tuple. Append only.
OPS: tuple[str, ...] = (
    "",
    # plain memory traffic
    "copy",  # read n, write n
    "cast",  # copy with a change of format
    "fill",  # write only
    "add",  # two reads, one write
    "mul",
    "pointwise",  # any other elementwise kernel, by bytes
    "transpose",  # strided copy: repeat_kv, contiguous(), layout changes
    "gather",  # index_select, embedding lookup
    "scatter_add",  # embedding gradient, MoE combine
    "reduce",  # sum or mean over the last dimension
    # fused kernels, as one framework operator or one inductor kernel
    "layernorm",
    "layernorm_backward",
    "rmsnorm",
    "rmsnorm_backward",
    "activation",  # silu, gelu, relu: one read, one write
    "activation_backward",
    "gated_activation",  # silu(gate) * up in one kernel
    "gated_activation_backward",
    "rope",
    "rope_backward",
    "softmax",
    "softmax_backward",
    "topk",  # router selection
    "sort",  # token permutation by expert
    "cross_entropy",  # log-softmax and loss
    "cross_entropy_backward",
    "adamw",  # fused optimizer step
    "embedding",
    "embedding_backward",
    "scan",  # Mamba and linear-attention recurrences
    "conv1d",
    "quantize",  # cast to fp8/mxfp8/nvfp4 with its scales
    # collectives
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "send_recv",
    # what eager frameworks launch besides: slower per byte than their plain twins, so measured apart
    "pointwise_strided",  # elementwise over a transposed or broadcast operand: bound by index arithmetic, not by bytes
    "cat",  # concatenation along an inner dimension
    "reduce_columns",  # sum over rows: bias and norm-weight gradients
    "fused_moe",  # of a grouped GEMM: a serving engine's whole layer of experts as one row
)
OP_CODES: dict[str, int] = {name: code for code, name in enumerate(OPS)}

# A memory-bound row's `library` where the kernel is a serving engine's: which one's, no table of theirs tells apart.
ENGINES_OWN = 1

# Which kernel of its `op` a memory-bound row is, where kernels of one op differ in speed; the backend of an attention.
# Append only.
VARIANTS: tuple[str, ...] = (
    "",  # the op's usual kernel: dense operands; of a norm or softmax the framework's fused kernel
    "compiled",  # as inductor fuses it with its neighbours
    "eager",  # the whole chain of kernels that eager code launches for it
    # elementwise: one operand is one value a row, one a column, or one in all
    "row",
    "col",
    "scalar",
    "in_place",  # the result takes an operand's place
    "expand",  # one value a row, written to the whole row
    "masked_fill",
    "tanh",
    "sigmoid",
    "exp",
    "pow",
    "rsqrt",
    # activations
    "silu",
    "gelu",
    "gelu_tanh",
    "relu",
    # over heads: rows are tokens x heads, cols the head's width
    "mul",
    "neg",
    "cat",
    "add",
    "repeat_kv",
    "repeat_kv_backward",
    "slice_backward",
    "matrix",  # a transposed matrix
    # indexing
    "index",
    "index_put",
    "take_along",
    "histogram",
    "cumsum",
    # reductions and losses
    "sum_row",
    "amax_row",
    "sum",  # of everything
    "nll",
    # attention backends of torch's scaled_dot_product_attention; "" is what it takes by itself
    "cudnn",
    "flash",
    "math",
)
VARIANT_CODES: dict[str, int] = {name: code for code, name in enumerate(VARIANTS)}


def kernel_codes(kernel: str) -> tuple[int, int]:
    """Codes of "op" or "op.variant"; raises KeyError for a name that is neither."""
    op, _, variant = kernel.partition(".")
    return OP_CODES[op], VARIANT_CODES[variant]


class Residency(IntEnum):
    """Where a memory-bound kernel finds its operands."""

    REUSED = 0  # inputs come from device memory; outputs go to the block just freed, as in an eager model
    WARM = 1  # everything was touched by the last kernel: in L2 as far as it fits
    COLD = 2  # outputs, too, are long gone from L2


class Label(Record, kw_only=True):
    """Where an operator sits in the model.

    name:      "q_proj", "attention", "rmsnorm" ...
    layer:     "decoder.0-31", "lm_head", "optimizer" ...; the repeat count covers the range
    part:      layer kind for the reader: embedding, attention, mlp, moe, mixer, norm, lm_head, loss, optimizer,
               communication, vision, encoder
    direction: "forward", "backward", "recompute" or "optimizer"
    """

    name: str
    layer: str
    part: str
    direction: str = "forward"


class OperatorTable(Record, kw_only=True):
    """Operators of one or many shapes under one workload; all arrays have shape (rows,).

    label, shape: index into `labels`; index of the candidate shape the row belongs to
    count:        how often the row is executed in one step (layers it stands for)
    kernels:      GPU kernels that one execution launches in the workload's execution mode
    kind, op, precision: codes of Kind, OPS, Precision
    flops:        model FLOPs of one execution (2 per multiply-add; causal half counted once; 0 for memory-bound rows)
    executed_flops: FLOPs the kernels really run: padding, recompute of the attention backward
    bytes_read, bytes_written: compulsory device-memory traffic of one execution, bytes
    special:      exp/tanh/rsqrt evaluations of one execution
    GEMM:         y[m,n] = x[m,k] w[n,k]^T, `groups` of them (batched); layout of Layout; output_bytes per element of y
    GROUPED_GEMM: m is the total number of rows over all groups, groups the experts
                  whose matrix is loaded (may be fractional: expected); of a weight gradient k is the total. skew: the groups' sizes fall as rank^-skew (0: all alike)
    ATTENTION:    batch, heads, kv_heads, head_dim (of q and k), head_dim_v, seq_q, seq_kv, causal (0/1),
                  window (0: none), phase of Phase, variant of VARIANTS. Over a latent cache (MLA) head_dim and
                  head_dim_v differ: expanded heads (DeepSeek: 192 and 128, kv_heads = heads) in prefill, absorbed ones
                  (576 and 512, kv_heads 1) in decode; the kernel alone, its projections are GEMMs of their own
    library:      whose kernel is asked for, in the list of a calibration's model (Gpu.library); 0: nobody's by name
    MEMORY:       rows x cols as the kernel sees them (a norm over cols; cols of a vocabulary row; a head's width);
                  variant of VARIANTS, residency of Residency; precision is that of the first input; recent_bytes of
                  bytes_read were touched by the kernel before and come from L2 as far as they fit
    COLLECTIVE:   message_bytes per rank (nccl-tests' definition of size), ranks
    A column that a kind does not use holds 0 (groups: 1).
    """

    labels: tuple[Label, ...]
    shapes: int
    label: Ints
    shape: Ints
    count: Floats
    kernels: Floats
    kind: Ints
    op: Ints
    precision: Ints
    flops: Floats
    executed_flops: Floats
    bytes_read: Floats
    bytes_written: Floats
    special: Floats
    groups: Floats
    skew: Floats
    m: Floats
    n: Ints
    k: Ints
    layout: Ints
    output_bytes: Floats
    batch: Ints
    heads: Ints
    kv_heads: Ints
    head_dim: Ints
    head_dim_v: Ints
    seq_q: Ints
    seq_kv: Ints
    causal: Ints
    window: Ints
    phase: Ints
    rows: Floats
    cols: Floats
    variant: Ints
    library: Ints
    residency: Ints
    recent_bytes: Floats
    message_bytes: Floats
    ranks: Ints

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Memory-bound rows without a name in OPS: a traced module's own kernels, of which only the bytes are known."""
        mask: NDArray[np.bool_] = (self.kind == Kind.MEMORY.value) & (self.op == 0)
        return mask

    def select(self, rows: NDArray[np.bool_] | Ints | slice) -> OperatorTable:
        """The rows of a mask, an index array or a slice, labels and shape count kept."""
        kept = [column[rows] for column in columns_of(self)]
        return OperatorTable(labels=self.labels, shapes=self.shapes, **dict(zip(COLUMNS, kept, strict=True)))

    def distinct(self) -> tuple[Ints, Ints]:
        """(rows, place): one row of each distinct operator, and for every row of the table which of those it is.

        Two rows are one operator where all columns agree but PLACE. They are told apart by 64-bit hashes: among a million
        distinct operators two are taken for one with a probability of 3e-8.
        """
        columns = (getattr(self, name) for name in COLUMNS if name not in PLACE)
        varied = (column for column in columns if len(column) and (column != column[0]).any())
        _, rows, place = np.unique(mixed(varied, len(self)), return_index=True, return_inverse=True)
        return rows, place


def present(codes: Ints) -> list[int]:
    """The small whole numbers that occur, ascending. np.unique would import numpy.ma, a tenth of a first question's time."""
    if len(codes) < FEW:
        return sorted(set(codes.tolist()))
    least = int(codes.min())
    return (np.flatnonzero(np.bincount(codes - least)) + least).tolist()


def mixed(columns: Iterable[Floats | Ints], length: int) -> NDArray[np.uint64]:
    """One number a row, equal for rows that are equal in all columns (of 8 bytes an entry)."""
    found = np.zeros(length, np.uint64)
    for column in columns:
        found = (found ^ column.view(np.uint64)) * _MIX
        found ^= found >> np.uint64(29)
    return found


FEW = 64  # codes that are counted sooner in Python
PLACE = ("label", "shape", "count")  # columns that say where a row stands, not what it is
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, odd: Fibonacci hashing
COLUMNS: dict[str, type] = {
    name: np.float64 if kind == "Floats" else np.int64
    for name, kind in OperatorTable.__annotations__.items()
    if name not in ("labels", "shapes")
}

columns_of = attrgetter(*COLUMNS)  # of a table, all at once


def table_from_columns(
    labels: Sequence[Label], shapes: int, length: int, columns: dict[str, NDArray[np.generic]]
) -> OperatorTable:
    """Build a table of `length` rows; a column that is left out is zero (groups, count, kernels: one).

    Raises KeyError for a column that does not exist and ValueError for one of another length.
    """
    full: dict[str, NDArray[np.generic]] = {}
    for name, dtype in COLUMNS.items():
        value = columns.pop(name, None)
        if value is None:
            value = np.ones(length, dtype) if name in ("groups", "count", "kernels") else np.zeros(length, dtype)
        if value.shape != (length,):
            raise ValueError(f"column {name} has shape {value.shape}, not ({length},)")
        full[name] = np.asarray(value, dtype)
    if columns:
        raise KeyError(f"no such columns: {sorted(columns)}")
    return OperatorTable(labels=tuple(labels), shapes=shapes, **full)  # type: ignore[arg-type]
