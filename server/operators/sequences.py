"""What each operation of a model launches on the GPU, kernel by kernel, and what autograd keeps of it: sequences.toml, which says how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewise.hwdb import packaged
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
            element=4 * letters.count("f") + letters.count("b") + 8 * letters.count("l"),
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


FLAGS: dict[str, dict[str, Any]] = {
    "special": {"special": 1},
    "special/row": {"special": 1, "special_per": "row"},
    "whole": {"whole": True},
    "scalar": {"whole": False},
    "narrow": {"only_narrow": True},
}


def launch(text: str) -> Launches:
    """[times] kernel read>written [options]; `kernel` is "op" or "op.variant"."""
    words = text.split()
    times = int(words.pop(0)) if words[0].isdigit() else 1
    kernel, operands, *rest = words
    options: dict[str, Any] = {}
    for word in rest:
        name, equals, value = word.partition("=")
        options |= {name: float(value)} if equals else FLAGS[word]
    read, written = operands.split(">")
    letters = read + written
    wide, whole = letters.lstrip("il")[:1] in ("f", "r", "v"), any(letter in "afb" for letter in letters)
    options = {"whole": whole, "times": times, **options}
    return Launches(*kernel_codes(kernel), wide, read=Operands.of(read), written=Operands.of(written), **options)


class Sequence(Record):
    """One operation: forward kernels, those that training adds to them, backward kernels, and the operands autograd keeps."""

    forward: tuple[Launches, ...] = ()
    training: tuple[Launches, ...] = ()
    backward: tuple[Launches, ...] = ()
    saved: Operands = Operands.of("")


TABLE = packaged.toml("tilewise.server.operators", "sequences.toml")
PARTS = {**TABLE["parts"], "lift": "cast a>f narrow", "lower": "cast f>a narrow"}


def launches(text: str) -> Iterator[Launches]:
    """The launches of a list, parts taken in."""
    for item in filter(None, text.split(", ")):
        if (name := item.removeprefix("@")) in PARTS:
            yield from launches(PARTS[name])
        else:
            yield launch(item)


def sequence(entry: dict[str, str]) -> Sequence:
    lists = {key: tuple(launches(entry.get(key, ""))) for key in ("forward", "training", "backward")}
    return Sequence(**lists, saved=Operands.of(entry.get("saved", "")))


class Sequences(Mapping[str, Sequence]):
    """Operations of one kind by name, each read when it is first asked for: a question needs a tenth of them."""

    def __init__(self, entries: Mapping[str, dict[str, str]]) -> None:
        self._entries = entries
        self._read: dict[str, Sequence] = {}

    def __getitem__(self, name: str) -> Sequence:
        if name not in self._read:
            self._read[name] = sequence(self._entries[name])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


KINDS = {kind: Sequences(entries) for kind, entries in TABLE.items() if kind != "parts"}
NORMS, ROPES, SCORES, ACTIVATIONS = (KINDS[kind] for kind in ("norms", "ropes", "scores", "activations"))
ROUTERS, WEIGHTS, OPERATIONS, FUSED = (KINDS[kind] for kind in ("routers", "weights", "operations", "fused"))
GATE, SHARED_GATE, LIFT, RESIDUAL = (OPERATIONS[name] for name in ("gate", "shared_gate", "lift", "residual"))
GATED_FUSED = FUSED["gated"]
