"""Stacks: the whole programs that run a model, as stacks.toml describes them, and which one runs where nobody says.

A stack is more than kernels: what it launches for an operator, how it calls attention, what it keeps in which precision.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import Trust

RECOMPUTE = ("none", "selective", "full")
RETIRED = {"engine": "stack"}  # fields of a workload that have another name now


class Stack(Record, kw_only=True):
    """One program.

    program:    what its sequence of kernels rests on: "compared" (with its own traces and measured steps), "published" (judged
                by steps that others measured), "sampled" (read off its code, set beside two measured steps)
    modes:      how it can launch kernels, the default first
    families:   model_types that it has a model for; none: all. precisions, recompute: what it is known here to do
    engine:     a serving engine, whose kernels are those of hwdb/kernels/engines.toml
    attention:  "masked" (a dense mask where transformers makes one, keys and values repeated beside it), "causal flag" (no mask,
                grouped keys and values as they are), "own kernels" (an engine's, by name)
    backends:   whether attention_backend can be chosen
    cache:      how keys and values are kept between tokens
    weights, master, moments, gradients: what training keeps: "none", "activations" (their width) or "fp32"
    gathers:    weights are cast to the activations' width before each pass, and gradients back (FSDP2's mixed precision)
    fused:      pointwise chains are fused kernels in every mode
    compiles:   "model", or "blocks": what lies around the blocks runs as torch has it
    complex_rotation: model_types that rotate by complex numbers, which inductor leaves to torch's kernels
    joins:      q, k and v are one product, gate and up another
    accumulates: a weight gradient's product adds to the gradient in its own precision
    selective:  what selective recompute computes twice: "pointwise" (norms, rotation, activations) or "attention core" (all between
                the projections)
    clips:      what is done about the size of gradients: "nothing", "norm" (taken), "norm and scale" (taken, and all scaled by it)
    splits:     whether tensor_parallel is known here
    expert_skew: how unevenly tokens choose experts where nobody says
    reserve:    share of the GPU's memory left to context, allocator and fragmentation where nobody says
    sources:    what all this was read off
    """

    name: str
    title: str
    program: str
    phases: tuple[str, ...]
    modes: tuple[str, ...]
    attention: str
    sources: str
    reserve: float
    recompute: tuple[str, ...] = RECOMPUTE
    precisions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    complex_rotation: tuple[str, ...] = ()
    engine: bool = False
    backends: bool = False
    cache: str = "none"
    weights: str = "activations"
    master: str = "none"
    moments: str = "activations"
    gradients: str = "activations"
    gathers: bool = False
    fused: bool = False
    compiles: str = "model"
    joins: bool = False
    accumulates: bool = False
    selective: str = "pointwise"
    clips: str = "nothing"
    splits: bool = True
    expert_skew: float = 0.0

    @property
    def factor(self) -> float:
        """By how much its time may lie off, either way, besides the error of its kernels."""
        return float(_facts()["program"][self.program]["factor"])

    @property
    def trust(self) -> Trust:
        """The most that a step of it may be trusted."""
        return Trust[_facts()["program"][self.program]["trust"].upper()]

    @property
    def masks(self) -> bool:
        """Whether it hands attention a dense mask at all."""
        return self.attention == "masked"

    def check_family(self, model_type: str) -> None:
        """Raises InvalidInput (STACK_WITHOUT_MODEL) where the program has no model of this type."""
        if self.families and model_type not in self.families:
            message = f"stack {self.name!r} is known here with models of type {', '.join(self.families)}, not {model_type!r}; stack 'transformers' runs all"
            raise InvalidInput(message, reason="STACK_WITHOUT_MODEL", field="workload.stack")


def stack(name: str) -> Stack:
    """The stack of a name in NAMES."""
    return _known()[name]


def default(phase: str, mode: str = "", attention_backend: str = "auto") -> str:
    """The stack that runs a phase where nobody says; transformers, whose they are, where a mode or an attention backend is named."""
    named = mode or attention_backend != "auto"
    return "transformers" if named else str(_facts()["default"].get(phase, "transformers"))


def note(program: Stack) -> tuple[str, ...]:
    """What must be said of a program that was set beside a few runs alone."""
    if program.program != "sampled":
        return ()
    return (
        f"stack {program.name} was read off its code and set beside two measured steps alone: its interval is {program.factor:g} times wider either way",
    )


def width(word: str, activations: int) -> int:
    """Bytes of an element that is kept as `word` says."""
    return {"none": 0, "activations": activations, "fp32": 4}[word]


def renamed(name: str, value: object) -> str:
    """The line on a field that has another name now."""
    return f"{name} is called {RETIRED[name]} now: {RETIRED[name]} {value!r}"


@cache
def _known() -> dict[str, Stack]:
    return {name: _stack(name, about) for name, about in _facts()["stack"].items()}


def _stack(name: str, about: dict[str, Any]) -> Stack:
    held: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in about.items()}
    return Stack(name=name, **held)


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads((files("tilewise.server") / "stacks.toml").read_text(encoding="utf-8"))


NAMES = tuple(_known())
