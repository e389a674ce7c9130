"""Which measured kernel stands behind a memory-bound row of a table: its op, its variant, 16 or 32 bits wide."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import OPS, VARIANTS, Floats, Ints

WIDE = np.array([precision in (Precision.FP32, Precision.TF32) for precision in Precision])
PRECISIONS = {"fp32": Precision.FP32, "fp16": Precision.FP16}  # of a measured row; everything else counts as bf16


@cache
def rules() -> dict[str, dict[str, Any]]:
    """memory.toml."""
    return tomllib.loads((files("tilewise.hwdb.kernels.memory") / "memory.toml").read_text(encoding="utf-8"))


def kernel_of(family: str, op: str, variant: str) -> str:
    """The table's name ("op" or "op.variant") of a measured kernel."""
    if family == "compiled":
        return f"{op}.compiled"
    name = rules()["same"].get(f"{op}/{variant}", f"{op}.{variant}")
    return str(name)


def names_of(family: str, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.str_]:
    """The table's name of every measured row's kernel; what was to be broadcast over a single head or row was not."""
    pairs = zip(columns["op"], columns["variant"], strict=True)
    names = [kernel_of(family, str(op), str(variant)) for op, variant in pairs]
    single = (columns["inner"] == columns["cols"]) | (columns["rows"] == 1)
    plain = rules()["single"]
    return np.array([plain.get(name, name) if one else name for name, one in zip(names, single, strict=True)], str)


def precisions_of(columns: Mapping[str, NDArray[Any]]) -> Ints:
    found = [PRECISIONS.get(str(precision), Precision.BF16) for precision in columns["precision"]]
    return np.array(found, np.int64)


class Traits(Record):
    """How kernels walk through memory (memory.toml, traits): one value a class, or a row after indexing."""

    rows_in_flight: Floats
    sorted_beyond: Floats
    rows_at_most: Floats
    chunk: Floats
    looped_beyond: Floats
    one_kernel: NDArray[np.bool_]
    softmax_paths: NDArray[np.bool_]
    warp_walk: NDArray[np.bool_]
    splits: NDArray[np.bool_]
    warp_steps: NDArray[np.bool_]
    few_sums: NDArray[np.bool_]
    picks: NDArray[np.bool_]

    def __getitem__(self, kinds: Ints) -> Traits:
        return Traits(*(getattr(self, name)[kinds] for name in self.__struct_fields__))


@cache
def traits() -> Traits:
    """The traits of every class."""
    found = [rules()["traits"][name] for name in rules()["class"]]
    none = {"rows_in_flight": 0.0, "sorted_beyond": 0.0, "rows_at_most": np.inf, "chunk": 0.0, "looped_beyond": 0.0}
    return Traits(
        *(np.array([one.get(name, none.get(name, False)) for one in found]) for name in Traits.__struct_fields__)
    )


def same_when_wide(kernel: str) -> bool:
    """Whether a kernel moves bytes whatever they mean."""
    return kernel in rules()["bytes"]["kernels"]


def class_of(kernel: str) -> int:
    """Index of the class of "op.variant" in memory.toml."""
    names = rules()["class"]
    for wanted in (kernel, kernel.partition(".")[0]):
        for index, members in enumerate(names.values()):
            if wanted in members:
                return index
    return len(names) - 1


class Catalogue(Record):
    """Measured kernels as (name, wide), and where every (op, variant, wide) is looked up.

    index: which measured kernel answers, shape (ops, variants, 2), -1 for none; own: whether it is the row's own
    """

    kernels: tuple[tuple[str, bool], ...]
    index: Ints
    own: NDArray[np.bool_]


def catalogue(kernels: Sequence[tuple[str, bool]]) -> Catalogue:
    """The catalogue of a calibration that measured these kernels; what it lacks is answered by its stand-in."""
    known = {kernel: at for at, kernel in enumerate(kernels)}
    index = np.full((len(OPS), len(VARIANTS), 2), -1, np.int64)
    own = np.zeros(index.shape, bool)
    for op, op_name in enumerate(OPS):
        for variant, variant_name in enumerate(VARIANTS):
            name = f"{op_name}.{variant_name}" if variant_name else op_name
            for wide in (0, 1):  # ints: a bool would be a mask
                found = _find(name, bool(wide), known)
                index[op, variant, wide] = found
                own[op, variant, wide] = found >= 0 and kernels[found] == (
                    name,
                    bool(wide) and not same_when_wide(name),
                )
    return Catalogue(tuple(kernels), index, own)


def _find(name: str, wide: bool, known: Mapping[tuple[str, bool], int]) -> int:
    """The kernel itself, or the same in the other width, its op's usual one, or what stands in for either."""
    stand_in, op = rules()["stand_in"], name.partition(".")[0]
    names = [name, *([stand_in[name]] if name in stand_in else []), op]
    names += [stand_in[op]] if op in stand_in else []
    for one in names:
        for width in (wide, not wide):
            if (one, width) in known:
                return known[one, width]
    return -1
