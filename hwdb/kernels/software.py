"""Whose kernels a published model knows, and which of them answers where nobody is named.

A table's column `library` names one: 0 for none, else 1 + its place in the model's list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Self

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from tilewise.hwdb import packaged
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.precision import FORMATS, NAMES, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Ints

USUAL_MIN = 100  # points below which an origin answers only where it is named


class Origin(Record, kw_only=True):
    """Whose kernels some published times are of: one entry of a model's `software`, made by the importer.

    engine, release: who calls the kernel ("vllm", "0.24.0"); a library or a tuner where no engine does
    kernel:   the engine's name for it; "" where the source has none
    formats:  of a product its own; of an attention those of the queries and of the cache: ("bf16", "fp8")
    phase:    of an attention "forward", "backward" or "decode", else ""; latent: timed over a latent cache (MLA)
    shuffled: its weights lie as the matrix units read them
    points:   times it was fitted to
    """

    engine: str
    release: str = ""
    kernel: str = ""
    formats: tuple[str, ...]
    phase: str = ""
    latent: bool = False
    shuffled: bool = False
    points: int = 0

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """An entry of a model's list."""
        return cls(**{**entry, "formats": tuple(entry["formats"])})

    def entry(self, points: int) -> dict[str, Any]:
        """What a model's list holds of it."""
        return {**asdict(self), "formats": list(self.formats), "points": points}

    @property
    def name(self) -> str:
        """For readers: "mla decode vllm 0.24.0; kernel, bf16/fp8"."""
        engine = " ".join(filter(None, ("mla" * self.latent, self.phase, self.engine, self.release)))
        return "; ".join(filter(None, (engine, self.kernel, "shuffled weights" * self.shuffled))) + f", {self.format}"

    @property
    def format(self) -> str:
        return "/".join(self.formats)

    def fits(self, rule: Mapping[str, Any]) -> bool:
        """Whether it is what a rule of software.toml means: texts hold the rule's, everything else equals it."""
        return all(
            value in getattr(self, name) if name in ("engine", "kernel") else getattr(self, name) == value
            for name, value in rule.items()
            if name != "rows"
        )

    @property
    def multiplies(self) -> Precision:
        """The precision in which it multiplies."""
        word = self.formats[0]
        return NAMES[facts()["formats"].get(word, {}).get("multiplies", word)]

    @property
    def weight_bytes(self) -> float:
        """Bytes of an element of the weights, scales included."""
        entry = facts()["formats"].get(self.formats[0], {})
        return float(entry["weight_bytes"]) if "weight_bytes" in entry else FORMATS[self.multiplies].bytes

    @property
    def cached_bytes(self) -> float:
        """Bytes of an element of the keys and values that an attention reads."""
        return 1.0 if self.formats[-1] == "fp8" else 2.0

    @property
    def quantises(self) -> bool:
        """Whether the times of its GEMMs hold the cast of the activations too."""
        bare = any(word in self.engine for word in facts()["bare"]["engines"])
        return self.multiplies >= Precision.FP8 and not bare

    def step(self, generation: str) -> int:
        """Rows by which the m of its GEMMs grows; 0 for a library whose tiles come in many heights."""
        rules = facts()["steps"].get(generation, ())
        return next((int(rule["rows"]) for rule in rules if self.fits(rule)), 0)


class Software(Record):
    """The origins of a model and their names.

    precision: in which each multiplies; usual: the one that answers for a Precision, -1 where none does
    """

    origins: tuple[Origin, ...]
    names: tuple[str, ...]
    precision: Ints
    usual: Ints

    @classmethod
    def of(cls, model: Mapping[str, Any], family: str) -> Software:
        """The software of a family's model; what has few points answers for nobody who does not name it."""
        found = cls.listed([Origin.of(one) for one in model["software"]])
        return replace(found, usual=found.usual_of(family, np.ones(len(found.origins), bool)))

    def usual_of(self, family: str, among: NDArray[np.bool_]) -> Ints:
        """The origin that answers for each Precision, `among` some; -1 where none of them does."""
        plenty = among & (self.column("points") >= USUAL_MIN)
        rules = facts()["usual"][family]
        found = [
            _usual(self.origins, np.flatnonzero(plenty & (self.precision == code)).tolist(), rules)
            for code in Precision
        ]
        return np.array(found)

    @classmethod
    def listed(cls, origins: Sequence[Origin]) -> Software:
        """Origins of which none is usual."""
        precision = np.array([int(one.multiplies) for one in origins], np.int64)
        names = tuple(one.name for one in origins)
        return cls(tuple(origins), names, precision, np.full(len(Precision), -1))

    def column(self, name: str) -> NDArray[Any]:
        """A field or property of every origin."""
        if name not in self._columns:
            self._columns[name] = np.array([getattr(one, name) for one in self.origins])
        return self._columns[name]

    def steps(self, generation: str) -> Ints:
        """Origin.step of every origin."""
        key = f"step {generation}"
        if key not in self._columns:
            self._columns[key] = np.array([one.step(generation) for one in self.origins], np.int64)
        return self._columns[key]

    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        return {}

    def chosen(self, library: Ints, precision: Ints) -> Ints:
        """Which origin answers each row; -1 where none is named and none knows the precision."""
        answering: Ints = np.where(library > 0, library - 1, self.usual[precision])
        return answering

    def both_phases(self) -> Ints:
        """For each forward of an attention whose kernel also decodes: the place of that decode, else -1."""
        decodes = {(one.engine, one.release, one.kernel, one.formats, one.latent): at
                   for at, one in enumerate(self.origins) if one.phase == "decode"}  # fmt: skip
        return np.array([
            decodes.get((one.engine, one.release, one.kernel, one.formats, one.latent), -1)
            if one.phase == "forward" and one.kernel.startswith(tuple(facts()["both_phases"]["kernels"])) else -1
            for one in self.origins
        ])  # fmt: skip


def code(model: Mapping[str, Any], origin: Origin) -> int:
    """The `library` code of an origin, 0 where the model does not know it."""
    known = [replace(Origin.of(one), points=0) for one in model.get("software", ())]
    asked = replace(origin, points=0)
    return known.index(asked) + 1 if asked in known else 0


def stated(text: str, *formats: str, path: str = "", phase: str = "", latent: bool = False) -> Origin:
    """The origin of a row of a public table, which states it as "ENGINE RELEASE; kernel NAME".

    path: of the file that the row comes from, which tells how weights lie. A tuner's choice is one origin, whichever
    backend won.
    """
    shuffled = facts()["tuners"]["shuffled"] in path
    about: dict[str, Any] = {"formats": formats, "phase": phase, "latent": latent}
    tuner = next((name for name in facts()["tuners"]["names"] if text.startswith(name)), "")
    if tuner:
        return Origin(engine=tuner.replace(", ", " "), shuffled=shuffled, **about)
    engine, _, kernel = text.replace("kernel ", "").replace(", ", " ").partition("; ")
    head, _, release = engine.rpartition(" ")
    if not head or not release[:1].isdigit():
        head, release = engine, ""
    return Origin(engine=head, release=release, kernel=kernel, **about)


@cache
def facts() -> dict[str, Any]:
    """software.toml."""
    return packaged.toml("tilewise.hwdb.kernels", "software.toml")


@cache
def engines() -> dict[str, Any]:
    """engines.toml: what is known of each serving engine. Its order is that of the engines' codes."""
    return packaged.toml("tilewise.hwdb.kernels", "engines.toml")


def _usual(origins: Sequence[Origin], candidates: Sequence[int], rules: Sequence[Mapping[str, Any]]) -> int:
    """The first candidate that the order of preference names, else the first of all."""
    for rule in rules:
        for one in candidates:
            if origins[one].fits(rule):
                return one
    return candidates[0] if candidates else -1
