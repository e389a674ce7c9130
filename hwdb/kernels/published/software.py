"""Whose kernels a published model knows, and which of them answers where nobody is named.

A table's column `library` names one: 0 for none, else 1 + its place in the model's list.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from tilewise.hwdb.precision import NAMES, Precision
from tilewise.hwdb.table import Ints

SHUFFLED = "; shuffled weights"
USUAL_MIN = 100  # points below which a software answers only where it is named


@dataclass(frozen=True, slots=True)
class Software:
    """names: as the source has them, with the number format; precision: in which each multiplies; usual: the one that

    answers for a Precision, -1 where none does
    """

    names: tuple[str, ...]
    precision: Ints
    usual: Ints

    @classmethod
    def of(cls, model: Mapping[str, Any], family: str) -> Software:
        """The software of a family's model; what has few points answers for nobody who does not name it."""
        found = cls.listed([str(one["name"]) for one in model["software"]])
        scarce = np.array([int(one["points"]) < USUAL_MIN for one in model["software"]], bool)
        order = facts()["usual"][family]
        usual = [
            _usual(found.names, np.flatnonzero(~scarce & (found.precision == code)).tolist(), order)
            for code in Precision
        ]
        return cls(found.names, found.precision, np.array(usual))

    @classmethod
    def listed(cls, names: Sequence[str]) -> Software:
        """Software by name, of which none is usual."""
        precision = np.array([int(multiplies(name)) for name in names], np.int64)
        return cls(tuple(names), precision, np.full(len(Precision), -1))

    def chosen(self, library: Ints, precision: Ints) -> Ints:
        """Which software answers each row; -1 where none is named and none knows the precision."""
        answering: Ints = np.where(library > 0, library - 1, self.usual[precision])
        return answering


def code(model: Mapping[str, Any], name: str) -> int:
    """The `library` code of a software by its name, 0 where the model does not know it."""
    names = [one["name"] for one in model.get("software", ())]
    return names.index(name) + 1 if name in names else 0


def label(software: str, *formats: str) -> str:
    """The name of a software as models list it: label("vllm 0.24.0; kernel X", "bf16", "fp8") -> "vllm 0.24.0; X, bf16/fp8".

    A tuner's choice is one software, whichever backend won.
    """
    tuner = next((name for name in facts()["tuners"]["names"] if software.startswith(name)), "")
    tuner += SHUFFLED * (tuner != "" and software.endswith(SHUFFLED))
    return f"{(tuner or software).replace('kernel ', '').replace(', ', ' ')}, {'/'.join(formats)}"


def laid_out(software: str, path: str) -> str:
    """A software with what the file that its row comes from tells of the weights: other kernels take shuffled ones."""
    return software + SHUFFLED * (facts()["tuners"]["shuffled"] in path)


def multiplies(name: str) -> Precision:
    """The precision in which a software multiplies, from the format in its name."""
    word = name.rpartition(", ")[2].partition("/")[0]
    return NAMES[facts()["formats"].get(word, {}).get("multiplies", word)]


def weight_bytes(name: str) -> float:
    """Bytes of an element of the weights, scales included."""
    from tilewise.hwdb.precision import FORMATS

    word = name.rpartition(", ")[2].partition("/")[0]
    entry = facts()["formats"].get(word, {})
    return float(entry["weight_bytes"]) if "weight_bytes" in entry else FORMATS[multiplies(name)].bytes


def cached_bytes(name: str) -> float:
    """Bytes of an element of the keys and values that an attention reads, from the second format in its name."""
    return 1.0 if name.rpartition("/")[2] == "fp8" else 2.0


def both_phases(names: Sequence[str]) -> Ints:
    """For each forward of an attention whose kernel also decodes: the place of that decode's name, else -1."""
    words = facts()["both_phases"]["words"]
    twins = [name.replace("forward", "decode", 1) if any(word in name for word in words) else "" for name in names]
    return np.array(
        [names.index(twin) if twin in names and twin != name else -1 for twin, name in zip(twins, names, strict=True)]
    )


def step(name: str, generation: str) -> int:
    """Rows by which the m of a GEMM's kernel grows; 0 for a library whose tiles come in many heights."""
    known = facts()["steps"].get(generation, {})
    return next((int(rows) for word, rows in known.items() if word in name), 0)


def quantises(name: str) -> bool:
    """Whether the times of a GEMM's software hold the cast of its activations too."""
    return multiplies(name) >= Precision.FP8 and not any(word in name for word in facts()["bare"]["words"])


@cache
def facts() -> dict[str, Any]:
    """software.toml."""
    return tomllib.loads((files("tilewise.hwdb.kernels.published") / "software.toml").read_text(encoding="utf-8"))


def _usual(names: Sequence[str], candidates: Sequence[int], order: Sequence[str]) -> int:
    """The first candidate that the order of preference names, else the first of all."""
    for word in order:
        for one in candidates:
            if word in names[one]:
                return one
    return candidates[0] if candidates else -1
