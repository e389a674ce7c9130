"""trace(module, inputs) -> OperatorTable: what an nn.Module does in a forward and a backward pass, without running it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec.structs import replace
from torch.utils._pytree import tree_leaves, tree_map

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.table import OperatorTable
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.ends import adamw
from tilewise.server.trace.kernels import Operand
from tilewise.server.trace.matrix import is_product
from tilewise.server.trace.opaque import opaque_attention
from tilewise.server.trace.place import place
from tilewise.server.trace.recorder import Call, Recorder

NUMBERED = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")


def trace(
    module: torch.nn.Module, *inputs: Any, train: bool = True, optimizer: str = "none", **named: Any
) -> OperatorTable:
    """The operators of one step of `module` on these inputs, as torch's eager mode launches them.

    inputs, named: arguments of the module's forward. Sizes and dtypes count, values do not: everything moves to the meta
                   device first, the module's parameters too (it is not changed).
    train:         forward and backward from the output's `loss`, or from every output that has a gradient; else forward
    optimizer:     "adamw" adds the fused step over the trainable parameters

    Equal calls of equal layers are one row with a count. An aten operator that Tilewise has no model for is a row with
    op "" (its kernels' bytes; the interval is wide). Dropout counts as the module's own train or eval mode has it.
    Raises InvalidInput (CANNOT_TRACE) where the module needs the value of a tensor to go on, or mixes devices.
    """
    emitter = placed(record(module, *inputs, train=train, **named), type(module).__name__)
    if optimizer == "adamw":
        for width, parameters in trainable(module).items():
            adamw(emitter, parameters, width)
    return emitter.table()


def placed(calls: Iterable[Call], root: str) -> Emitter:
    """The rows of recorded calls; `root`: what the module itself is called."""
    emitter = Emitter()
    for group in grouped(calls, root):
        with emitter.scope(layer=group.layer, part=group.part, count=group.count):
            emitter.keep = group.call.direction != "recompute"
            place(emitter, group.name, group.call)
    return emitter


def record(module: torch.nn.Module, *inputs: Any, train: bool = True, **named: Any) -> list[Call]:
    """Every aten operator of one step, in order. Raises InvalidInput as `trace` does."""
    recorder, step = Recorder(), Step(module)
    state = {**dict(step.named_parameters()), **dict(step.named_buffers())}
    with opaque_attention(), recorder.following(module), nullcontext() if train else torch.no_grad():
        try:
            empty = {name: _on_meta(tensor) for name, tensor in state.items()}
            given, keywords = tree_map(_on_meta, (inputs, named))
            torch.func.functional_call(step, empty, (recorder, train, given, keywords))
        except (RuntimeError, ValueError) as error:  # torch's refusals; NotImplementedError is a RuntimeError
            message = f"{type(module).__name__} cannot be traced on the meta device: {str(error).splitlines()[0]}"
            raise InvalidInput(message, reason="CANNOT_TRACE", field="module") from error
    return recorder.calls


class Step(torch.nn.Module):
    """Forward and backward in one call, so that layers that run again in the backward still find their parameters."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, recorder: Recorder, train: bool, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        with recorder:
            result = self.module(*inputs, **named)
        if train:
            _backward(recorder, result)


def _on_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.is_meta:
        return value
    moved = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    return moved.requires_grad_(value.requires_grad)


def _backward(recorder: Recorder, result: Any) -> None:
    """From the loss where the output names one, as transformers' outputs do; else from all that has a gradient."""
    loss = result.get("loss") if isinstance(result, dict) else getattr(result, "loss", None)
    ends = [loss] if loss is not None else tree_leaves(result)
    ends = [end for end in ends if isinstance(end, torch.Tensor) and end.requires_grad]
    if not ends:
        message = "nothing in the module's output has a gradient: trace with train=False, or unfreeze parameters"
        raise InvalidInput(message, reason="CANNOT_TRACE", field="module")
    recorder.direction = "backward"
    with recorder:
        torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])


def trainable(module: torch.nn.Module) -> dict[int, int]:
    """Trainable parameters by the bytes of an element."""
    counts: dict[int, int] = {}
    for parameter in module.parameters():
        if parameter.requires_grad:
            counts[parameter.itemsize] = counts.get(parameter.itemsize, 0) + parameter.numel()
    return counts


@dataclass
class Group:
    """Equal calls of layers that differ in their number alone."""

    call: Call
    root: str
    places: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.places)

    @property
    def layer(self) -> str:
        """ "model.layers.0-3": the path to the first numbered module, with the numbers that occur."""
        where = self.places[0]
        found = NUMBERED.search(where)
        if found is None:
            return where.rpartition(".")[0] or where or self.root
        numbers = sorted({int(match[1]) for place in self.places if (match := NUMBERED.search(place))})
        return where[: found.start(1)] + "".join(_ranges(numbers))

    @property
    def part(self) -> str:
        """The kind of layer: what follows the first number, or the last name where there is no number."""
        where = self.places[0]
        found = NUMBERED.search(where)
        if found is None:
            return where.rpartition(".")[2] or self.root
        stack = where[: found.start(1)].rstrip(".").rpartition(".")[2]
        return where[found.end(1) + 1 :].partition(".")[0] or stack or self.root

    @property
    def name(self) -> str:
        """The module's own name for products, else with the operator: "q_proj", "input_layernorm.rsqrt"."""
        leaf = NUMBERED.sub("", self.places[0]).rpartition(".")[2]
        if leaf and is_product(self.call.name):
            return leaf
        return f"{leaf}.{self.call.name}".lstrip(".")


def grouped(calls: Iterable[Call], root: str) -> list[Group]:
    """Calls in the order of their first appearance; `root`: what the module itself is called."""
    groups: dict[Any, Group] = {}
    for call in calls:
        key = (NUMBERED.sub(".*", call.where), call.name, call.direction, _signature(call.arguments), _sizes(call.outs))
        groups.setdefault(key, Group(call, root)).places.append(call.where)
    return list(groups.values())


def _sizes(operands: Iterable[Operand]) -> tuple[Operand, ...]:
    return tuple(replace(operand, storage=0) for operand in operands)


def _signature(value: Any) -> Any:
    """A hashable copy of arguments that says nothing of where tensors lie."""
    if isinstance(value, Operand):
        return replace(value, storage=0)
    if isinstance(value, dict):
        return tuple((key, _signature(item)) for key, item in value.items())
    return tuple(map(_signature, value)) if isinstance(value, tuple) else str(value)


def _ranges(numbers: list[int]) -> Iterator[str]:
    """[0, 1, 2, 5] -> "0-2,5"."""
    for at, number in enumerate(numbers):
        before = at > 0 and numbers[at - 1] == number - 1
        after = at + 1 < len(numbers) and numbers[at + 1] == number + 1
        if not before:
            yield f"{',' if at else ''}{number}"
        elif not after:
            yield f"-{number}"
