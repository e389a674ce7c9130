"""Records every aten operator of a forward and a backward pass, with the module that asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tilewise.hwdb.record import Record
from tilewise.server.trace.kernels import FREE, Operand, Operands


class Call(Record):
    """One aten operator that launches kernels.

    name:      without namespace and overload: "mm", "native_layer_norm", "add_"; base: the same for in-place twins
    arguments: by the names of its schema; tensors as Operand, lists of tensors as tuples
    ins, outs: its distinct input and output tensors
    where:     module that asked for it, as named_modules() names it; "" for the root
    direction: "forward", "backward" or "recompute" (a module that runs while gradients are computed)
    pointwise, reduces: what torch's own tags say
    """

    name: str
    arguments: dict[str, Any]
    ins: Operands
    outs: Operands
    where: str
    direction: str
    pointwise: bool
    reduces: bool

    @property
    def base(self) -> str:
        return self.name.removesuffix("_")


@dataclass
class Recorder(TorchDispatchMode):
    """`calls`: what ran, in order. A backward operator belongs to the module whose forward made its autograd node."""

    calls: list[Call] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    owner: dict[int, str] = field(default_factory=dict)
    direction: str = "forward"

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in SEVERAL_KERNELS:
            with self:
                return SEVERAL_KERNELS[function](*args, **kwargs)
        where, direction = self._place()
        result = function(*args, **kwargs)
        name = function._schema.name.split("::")[1]
        if not function.is_view and name not in FREE:
            self.calls.append(_call(function, name, args, kwargs, result, where, direction))
        return result

    def _place(self) -> tuple[str, str]:
        """Module and direction of the operator that runs now."""
        node = torch._C._current_autograd_node()
        if node is None:
            where = self.modules[-1] if self.modules else ""
            self.owner.setdefault(torch._C._autograd._get_sequence_nr() - 1, where)
            return where, self.direction
        if self.modules:
            return self.modules[-1], "recompute"
        return self.owner.get(node._sequence_nr(), ""), "backward"

    def _leave(self, *_: Any) -> None:
        self.modules.pop()

    @contextmanager
    def following(self, module: torch.nn.Module) -> Iterator[None]:
        """Knows which submodule of `module` is running."""
        handles = []
        for name, child in module.named_modules():
            handles.append(child.register_forward_pre_hook(lambda *_, name=name: self.modules.append(name)))
            handles.append(child.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _safe_softmax(scores: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """What this one operator launches on a GPU (ATen/native/SoftMax.cpp): rows that are masked whole become zeros."""
    weights = torch._softmax(scores if dtype is None else scores.to(dtype), dim, False)
    masked = torch.all(torch.eq(scores, float("-inf")), dim, keepdim=True)
    return torch.where(masked, torch.scalar_tensor(0.0, device=scores.device, dtype=weights.dtype), weights)


def _masked_fill(given: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    """A copy, and the write into it."""
    return given.clone(memory_format=torch.contiguous_format).masked_fill_(mask, value)


# operators of one name that ATen itself makes of several
SEVERAL_KERNELS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.ops.aten._safe_softmax.default: _safe_softmax,
    torch.ops.aten.masked_fill.Scalar: _masked_fill,
    torch.ops.aten.masked_fill.Tensor: _masked_fill,
}


def _call(function: Any, name: str, args: Any, kwargs: Any, result: Any, where: str, direction: str) -> Call:
    schema = function._schema
    arguments = {a.name: value for a, value in zip(schema.arguments, args, strict=False)} | kwargs
    return Call(
        name=name,
        arguments={key: _described(value) for key, value in arguments.items()},
        ins=_operands((args, kwargs)),
        outs=_operands(result),
        where=where,
        direction=direction,
        pointwise=torch.Tag.pointwise in function.tags,
        reduces=torch.Tag.reduction in function.tags,
    )


def _operands(values: Any) -> Operands:
    """Distinct tensors among nested values."""
    tensors = [_operand(value) for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    return tuple(dict.fromkeys(tensors))


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _operand(value)
    if isinstance(value, list | tuple):
        return tuple(_described(item) for item in value)
    return value


def _operand(tensor: torch.Tensor) -> Operand:
    name = str(tensor.dtype).removeprefix("torch.")
    return Operand(tuple(tensor.shape), tuple(tensor.stride()), name, tensor.itemsize, tensor.untyped_storage()._cdata)
