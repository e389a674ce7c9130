"""The workload of a question as options: each is a field of tilewise.v1.Workload, its type and words read off the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tilewise.client.cli.options import Command, option
from tilewise.server.messages.words import filled, living, retired, type_of, words
from tilewise.v1.workload_pb2 import Workload

FIELDS = living(Workload.DESCRIPTOR)
SIZES = [name for name, field in FIELDS.items() if type_of(field) is int]
FLAGS = {"sequence": "--seq", "tensor_parallel": "--tp", "expert_parallel": "--ep"}  # others are their field's name
HELP = {
    "phase": "What runs.",
    "batch": "Sequences per step.",
    "sequence": "Tokens per sequence, in train and prefill.",
    "context": "Keys that each new token attends to, in decode.",
    "precision": "Format of the GEMMs; unset: bf16.",
    "stack": "The program that runs it; unset: transformers in train, else vllm.",
    "mode": "How kernels are launched; unset: the stack's first, as eager.",
    "tensor_parallel": "GPUs that share every layer; unset: 1.",
    "recompute": "Activations computed twice; unset: none.",
    "optimizer": "Unset: adamw in train, else none.",
    "state": "Unset: sustained in train, else burst.",
    "logits": "Positions of the lm_head; unset: last, all in train.",
    "attention_backend": "Unset: auto.",
    "cache": "Of keys and values; unset: append, none in train.",
    "expert_parallel": "Of an engine's --tp GPUs, how many share out whole experts; unset: 1.",
    "expert_skew": "An engine's experts: shares of tokens fall as rank^-SKEW; unset: 1.01; 0: evenly.",
    "kv_cache": "Format of an engine's cache; unset: auto.",
    "reserve": "Share of the GPU's memory to leave free; unset: 0.06.",
    "issue_us": "Microseconds your CPU takes to issue an eager kernel; unset: as the calibration's host.",
}


def workload_options(phase: str | None = None) -> Callable[[Command], Command]:
    """An option for each field of a workload, in the order of HELP. `phase`: its default; without one it is required."""
    defaults = {"phase": phase, "batch": 1}

    def add(command: Command) -> Command:
        for name in reversed(HELP):
            command = _option(name, defaults.get(name))(command)
        for name in retired(Workload.DESCRIPTOR):
            command = click.option(f"--{name}", hidden=True, expose_value=False, callback=_retired)(command)
        return command

    return add


def _option(name: str, default: Any) -> Callable[[Command], Command]:
    field = FIELDS[name]
    kind: Any = type_of(field) if field.enum_type is None else click.Choice(words(field.enum_type))
    settled = {"required": name == "phase"} if default is None else {"default": default, "show_default": True}
    return option(flag(name), name, type=kind, help=HELP[name], **settled)


def flag(name: str) -> str:
    """The option of a field."""
    return FLAGS.get(name, "--" + name.replace("_", "-"))


def _retired(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Refuses an option that has another name now."""
    if value is not None:
        from tilewise.server import stacks

        new = stacks.RETIRED[str(parameter.name)]
        raise click.UsageError(f"--{parameter.name} is called --{new} now: --{new} {value}")


def workload_of(chosen: dict[str, Any]) -> Workload:
    """The Workload of a command's options."""
    from tilewise.client.question import check_sizes

    check_sizes(chosen)
    try:
        return filled(Workload, chosen)
    except ValueError as error:  # a number beyond 64 bits
        raise click.UsageError(f"a size is far out of range: {error}") from error
