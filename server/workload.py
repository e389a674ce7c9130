"""Workload: what is done with an architecture. Everything that can be checked without the architecture is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import numpy as np
from msgspec.structs import force_setattr, replace

from tilewise.hwdb.errors import InvalidInput, unknown
from tilewise.hwdb.precision import FORMATS, NAMES, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Ints
from tilewise.hwdb.times import State
from tilewise.server import stacks
from tilewise.server.stacks import Stack

STATES = {"burst": State.BURST, "sustained": State.SUSTAINED}
CHOICES: dict[str, tuple[str, ...]] = {
    "phase": ("train", "prefill", "decode"),
    "precision": tuple(NAMES),
    "mode": ("eager", "compiled", "graph"),
    "recompute": stacks.RECOMPUTE,
    "optimizer": ("adamw", "none"),
    "state": tuple(STATES),
    "logits": ("last", "all"),
    "cache": ("none", "append"),
    "attention_backend": ("auto", "flash", "cudnn", "math"),
    "stack": stacks.NAMES,
    "kv_cache": ("auto", "fp8"),
}
LIMIT = 1 << 40  # beyond any real size; keeps products of sizes inside int64
SKEW_MAX = 2.0  # published fused layers have 0, 1.01 and 1.2
RESERVE_MAX = 0.9  # of the GPU's memory
SERVING = ("kv_cache", "expert_skew", "expert_parallel")  # what engines alone can be asked
ISSUE_MAX = 1000.0  # a millisecond a kernel: twenty times the slowest host seen
LENGTHS = ("batch", "sequence", "context")  # in which the candidates of one pass may differ
TOGETHER_MAX = 2**22  # tokens of such a candidate: its scores, a square, stay inside int64
TOKENS_MAX = 2**36  # tokens held at a time; far beyond it bytes no longer fit the 64 bits of the contract


class Workload(Record, kw_only=True):
    """One step of training, one prefill or one decoded token.

    phase:      "train" (forward, backward, optimizer), "prefill" (forward, KV cache written), "decode" (one new token
                per sequence)
    batch:      sequences per GPU (per tensor-parallel group)
    sequence:   tokens per sequence in train and prefill
    context:    decode: keys each new token attends to, itself included; 0 elsewhere
    precision:  input format of the linear layers' GEMMs; attention, router and lm_head keep 16 bit under 8-bit and
                4-bit formats
    stack:      the program that runs it (stacks.py); unset: stacks.default
    mode:       "eager" (one kernel per framework operator), "compiled" (what inductor fuses), "graph" (the same kernels
                launched as graph nodes); unset: the stack's first
    recompute:  "none"; "full" (checkpoint every layer); "selective" (norms, rotary and activation functions
                again in the backward, matrix products kept)
    optimizer:  "adamw" (fused; its states as the stack keeps them) or "none"
    state:      "burst" or "sustained" clock; unset: sustained, as in steady work
    cache:      whether keys and values are kept for later tokens: "append" (the default when serving) or "none"
    logits:     positions the lm_head runs on: "last" (prefill's default) or "all" (train's only choice)
    expert_parallel: of an engine's tensor_parallel GPUs, among how many whole experts are shared out
    expert_skew: how unevenly an engine's tokens choose experts: shares fall as rank^-skew; 0: evenly; unset: the stack's
    kv_cache:   format of cached keys and values: "auto" (that of the activations) or an engine's "fp8"
    reserve:    share of the GPU's memory that must stay free; unset: the stack's
    issue_us:   microseconds that the asker's CPU takes to issue one kernel of eager code; 0: as the calibration's host

    Raises InvalidInput with the field's name.
    """

    phase: str = "train"
    batch: int = 1
    sequence: int = 0
    context: int = 0
    precision: str = "bf16"
    mode: str = ""
    tensor_parallel: int = 1
    recompute: str = "none"
    optimizer: str = ""
    state: str = ""
    logits: str = ""
    attention_backend: str = "auto"
    cache: str = ""
    kv_cache: str = "auto"
    expert_skew: float = None  # type: ignore[assignment]  # filled in below
    expert_parallel: int = 1
    issue_us: float = 0.0
    stack: str = ""
    reserve: float = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        self._choose_stack()
        training, program = self.phase == "train", self.program
        defaults = {
            "optimizer": "adamw" if training else "none",
            "state": "sustained",
            "logits": "all" if training else "last",
            "cache": "none" if training else "append",
            "mode": program.modes[0],
            "expert_skew": program.expert_skew,
            "reserve": program.reserve,
        }
        for name, value in defaults.items():
            if getattr(self, name) in ("", None):
                force_setattr(self, name, value)
        for name, allowed in CHOICES.items():
            _choose(name, getattr(self, name), allowed)
        for name in (
            "batch",
            "tensor_parallel",
            "expert_parallel",
            "context" if self.phase == "decode" else "sequence",
        ):
            _positive(name, getattr(self, name), self.phase)
        length = self.context if self.phase == "decode" else self.sequence
        if self.batch * length > TOKENS_MAX:
            raise _invalid("batch", f"batch {self.batch} times {length} tokens is out of range: at most {TOKENS_MAX}")
        _number("expert_skew", self.expert_skew, "0 (even)", SKEW_MAX)
        _number("issue_us", self.issue_us, "0 (the calibration's host)", ISSUE_MAX)
        _number("reserve", self.reserve, "0", RESERVE_MAX)
        self._consistent()
        self._possible(program)

    def _choose_stack(self) -> None:
        _choose("phase", self.phase, CHOICES["phase"])  # of a policy it may be anything
        if not self.stack:
            force_setattr(self, "stack", stacks.default(self.phase, self.mode, self.attention_backend))
        _choose("stack", self.stack, CHOICES["stack"])

    def _consistent(self) -> None:
        other = "sequence" if self.phase == "decode" else "context"
        if getattr(self, other):
            length = "context" if self.phase == "decode" else "sequence"
            raise _invalid(other, f"{other} means nothing in {self.phase}, whose length is {length}")
        if self.phase != "train" and self.recompute != "none":
            raise _invalid("recompute", f"recompute {self.recompute!r} needs phase 'train'; {self.phase} keeps nothing")
        if self.phase != "train" and self.optimizer != "none":
            raise _invalid("optimizer", f"optimizer {self.optimizer!r} needs phase 'train'; {self.phase} has no step")
        if self.phase == "train" and self.logits != "all":
            raise _invalid("logits", "train computes a loss at every position: logits must be 'all'")
        if self.tensor_parallel % self.expert_parallel:
            fits = ", ".join(str(n) for n in range(1, self.tensor_parallel + 1) if self.tensor_parallel % n == 0)
            message = f"expert_parallel {self.expert_parallel} is no divisor of tensor_parallel {self.tensor_parallel}: {fits} are"
            raise _invalid("expert_parallel", message)

    def _possible(self, program: Stack) -> None:
        """What the stack does at all."""
        if self.phase not in program.phases:
            runs = " and ".join(name for name in stacks.NAMES if self.phase in stacks.stack(name).phases)
            message = (
                f"stack {self.stack!r} runs {' and '.join(program.phases)}, not {self.phase}; that is run by {runs}"
            )
            raise _invalid("stack", message)
        for name, allowed in (
            ("mode", program.modes), ("recompute", program.recompute), ("precision", program.precisions),
            ("attention_backend", () if program.backends else ("auto",)),
            ("tensor_parallel", () if program.splits else (1,)),
            ("kv_cache", () if program.engine else ("auto",)),
            ("expert_skew", () if program.engine else (0.0,)),
            ("expert_parallel", () if program.engine else (1,)),
        ):  # fmt: skip
            if allowed and getattr(self, name) not in allowed:
                raise _invalid(name, self._impossible(name, allowed))

    def _impossible(self, name: str, allowed: tuple[object, ...]) -> str:
        only = " or ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in allowed)
        value = getattr(self, name)
        hint = "; stacks that serve take others" if name in SERVING else ""
        return f"{name} {value!r} is not what stack {self.stack!r} does: it is {only}, or unset{hint}"

    @property
    def program(self) -> Stack:
        return stacks.stack(self.stack)

    @property
    def format(self) -> Precision:
        return NAMES[self.precision]

    @property
    def quantized(self) -> bool:
        """Whether the GEMMs' inputs are narrower than the activations around them."""
        return FORMATS[self.format].bytes < 2

    @property
    def clock(self) -> State:
        return STATES[self.state]

    @property
    def expert_shards(self) -> int:
        """Ranks that divide an expert's width."""
        return self.tensor_parallel // self.expert_parallel

    @property
    def tokens(self) -> int:
        """Tokens that pass through the layers in one step."""
        return self.batch if self.phase == "decode" else self.batch * self.sequence


def together(workload: Workload, sizes: Mapping[str, Ints]) -> Workload:
    """The workload of many candidates in one pass: with an array in place of each of these LENGTHS.

    Raises InvalidInput where one of them cannot be, or is so long that it must be asked by itself.
    """
    lengths = {name: sizes.get(name, getattr(workload, name)) for name in LENGTHS}
    tokens = 1.0 * lengths["batch"] * (lengths["context"] if workload.phase == "decode" else lengths["sequence"])
    for most in (*sizes.values(), tokens):
        at = int(np.argmax(most))
        replace(workload, **{name: int(values[at]) for name, values in sizes.items()})
    if tokens.max() > TOGETHER_MAX:
        raise _invalid("batch", f"{tokens.max():.0f} tokens are too many to be predicted beside others")
    found = copy(workload)
    for name, values in sizes.items():
        force_setattr(found, name, values)
    return found


def _choose(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise _invalid(name, unknown(name, value, allowed))


def _positive(name: str, value: int, phase: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(name, f"{name} must be a whole number, got {value!r}")
    if value == 0:
        raise _invalid(name, f"{name} is needed for {phase}: 1 to {LIMIT - 1}")
    if not 0 < value < LIMIT:
        raise _invalid(name, f"{name} {value} is out of range for {phase}: 1 to {LIMIT - 1}")


def _number(name: str, value: float, least: str, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(name, f"{name} must be a number, got {value!r}")
    if not 0 <= value <= most:
        raise _invalid(name, f"{name} {value:g} is out of range: {least} to {most:g}")


def _invalid(field: str, message: str) -> InvalidInput:
    return InvalidInput(message, reason="INVALID_WORKLOAD", field=f"workload.{field}")
