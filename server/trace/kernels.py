"""Which aten operators launch kernels at all, and how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewise.hwdb.record import Record
from tilewise.server.operators.attention_kernel import CUDNN_HEAD_DIM, backward_kernels, forward_kernels
from tilewise.server.operators.ends import embedding_backward_kernels
from tilewise.server.operators.routing import index_put_kernels, sort_kernels

# Nothing runs on the GPU, though torch does not mark them as views
FREE = frozenset(
    ("_unsafe_view", "detach", "empty", "empty_like", "empty_permuted", "empty_strided", "lift_fresh", "new_empty",
     "new_empty_strided", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "is_same_size", "set_",
     "_has_compatible_shallow_copy_type", "resize_", "sym_size", "sym_stride", "sym_numel", "is_nonzero")
)  # fmt: skip


class Operand(Record):
    """A tensor as a kernel sees it: its sizes, strides in elements, element type and which memory it lies in."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    itemsize: int
    storage: int

    @property
    def numel(self) -> int:
        elements = 1
        for size in self.shape:
            elements *= size
        return elements

    @property
    def size_bytes(self) -> int:
        """Bytes that lie in memory: a broadcast dimension lies there once."""
        size = self.itemsize
        for length, stride in zip(self.shape, self.stride, strict=True):
            size *= length if stride else min(length, 1)
        return size

    @property
    def plain(self) -> bool:
        """Whether elements follow one another in memory in the order of their indices."""
        expected = 1
        for length, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if length != 1 and stride != expected:
                return False
            expected *= length
        return True


Operands = tuple[Operand, ...]


def _columns(ins: Operands, outs: Operands) -> bool:
    """A sum over all rows down to one row of columns: its semaphores need a memset."""
    given, result = ins[0], outs[0]
    return (
        len(given.shape) >= 2
        and result.shape[-1:] == given.shape[-1:]
        and given.numel > result.numel == given.shape[-1]
    )


def _cumsum(ins: Operands, outs: Operands) -> int:
    """A cast where types differ, and a scan: CUB's of two kernels along one row (ATen/native/cuda/ScanUtils.cuh, scan_dim)."""
    row = outs[0].numel == max(outs[0].shape, default=1)
    return (ins[0].dtype != outs[0].dtype) + (2 if row and outs[0].numel > 1 else 1)


def _index_put(ins: Operands, outs: Operands) -> int:
    """Accumulating, as in every gather's backward."""
    indices = [x for x in ins[1:] if x.dtype == "int64"]
    return int(index_put_kernels(max((x.numel for x in indices), default=1), outs[0].shape[0]))


def _attention_backward(ins: Operands, outs: Operands) -> int:
    query, key = ins[1], ins[2]
    return int(backward_kernels(query.shape[-3] > key.shape[-3], query.shape[-1] > CUDNN_HEAD_DIM))


# Kernels of aten operators that launch more than one (profiles of torch 2.11 on Hopper)
SEVERAL: dict[str, Callable[[Operands, Operands], int]] = {
    "slice_backward": lambda ins, outs: 2 if ins and ins[0].numel else 1,
    "select_backward": lambda ins, outs: 2,
    "constant_pad_nd": lambda ins, outs: 2,
    "native_layer_norm_backward": lambda ins, outs: 2,
    "nll_loss_backward": lambda ins, outs: 2,
    "embedding_dense_backward": lambda ins, outs: int(embedding_backward_kernels(ins[1].numel)),
    "topk": lambda ins, outs: 1 + (outs[0].shape[-1] > 1),  # and a sort of what was found
    "histc": lambda ins, outs: 2,
    "cumsum": _cumsum,
    "_grouped_mm": lambda ins, outs: 2,
    "sum": lambda ins, outs: 2 if _columns(ins, outs) else 1,
    "sort": lambda ins, outs: int(sort_kernels(ins[0].numel)),
    "index_put": _index_put,
    "attention_forward": lambda ins, outs: int(
        forward_kernels(ins[0].shape[-2] == 1, ins[0].shape[-1] > CUDNN_HEAD_DIM)
    ),
    "attention_backward": _attention_backward,
}


def kernels(name: str, ins: Operands, outs: Operands) -> int:
    """GPU kernels that one call of an aten operator launches."""
    several: Any = SEVERAL.get(name)
    return int(several(ins, outs)) if several else 1
