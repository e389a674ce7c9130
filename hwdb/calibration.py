"""Calibration: an immutable folder of measurements, the models fitted to them, and a card that sums them up.

    card.json                   what, where, when, with which stack; points, noise, what was thrown away; held-out errors
    measurements/<family>.csv   one row a point, sorted by its key, so that two calibrations can be compared by `diff`
    measurements/census.csv     GEMM shapes of which only the kernel was looked at
    measurements/kernels.csv    id, name of every kernel; the column `kernel` of the other files holds ids
    measurements/choices.npz    GEMM shapes for which the library's heuristic was asked, if it can be
    measurements/counters.csv   low-level counters of thirty kernels, if a profiler was there
    measurements/failures.csv   points that have no time, and why
    models/<family>.safetensors, .json  what was fitted: arrays, or plain numbers

The id is the date and the first eight digits of the SHA-256 over all files, so a changed file is another calibration.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.arrays import unpacked
from tilewise.hwdb.errors import InvalidInput, NotFound
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.texts import read_json
from tilewise.hwdb.times import Trust

SCHEMA = 1
HELD_OUT = 5  # every fifth shape is never fitted
NOT_SHAPE = ("sets",)  # key columns that vary how a shape was measured, not the shape
ERROR_WORDS = ("family", "group")
ERROR_NUMBERS = ("points", "refused", "mean_error", "p90_error", "bias", "interval_coverage")
ERROR_MAX = 1e9
ARRAYS = ".safetensors"  # ends the name of a model's arrays (arrays.py)
FAMILY = re.compile(r"[a-z0-9_]{1,40}")  # names a file, so it is never a path
UNHASHED = ("id", "content_sha256")  # card entries that state the hash itself

Column = NDArray[Any]
Measurements = Mapping[str, Column]


class Calibration:
    """One calibration's folder. Files are read when first asked for."""

    def __init__(self, folder: Path, card: str | None = None) -> None:
        """card: the text of its card, where nothing else of it is at hand"""
        self.folder, self._text = folder, card
        self._measurements: dict[str, Measurements] = {}
        self._models: dict[str, dict[str, Any]] = {}

    @staticmethod
    def open(path: Path | str) -> Calibration:
        """The calibration in a folder. Raises NotFound where there is no card, InvalidInput for another schema."""
        calibration = Calibration(Path(path))
        if not (calibration.folder / "card.json").is_file():
            raise NotFound(f"{path} holds no calibration: card.json is missing", reason="CALIBRATION_NOT_FOUND")
        if calibration.card.get("schema") != SCHEMA:
            message = f"{path} has calibration schema {calibration.card.get('schema')}; this version reads {SCHEMA}"
            raise InvalidInput(message, reason="BAD_CALIBRATION")
        return calibration

    @cached_property
    def card(self) -> dict[str, Any]:
        try:
            text = self._text or (self.folder / "card.json").read_text(encoding="utf-8")
            found = read_json(text)
        except ValueError as error:
            raise InvalidInput(f"card.json is no JSON: {error}", reason="BAD_CALIBRATION") from error
        if not isinstance(found, dict):
            raise InvalidInput("card.json is no JSON object", reason="BAD_CALIBRATION")
        return found

    @property
    def id(self) -> str:
        return str(self.card["id"])

    @property
    def sha256(self) -> str:
        """Hash of the content as the card states it; `content_sha256` counts it anew."""
        return str(self.card["content_sha256"])

    @property
    def sku(self) -> str:
        return str(self.card["sku"])

    @property
    def trust(self) -> Trust:
        """How far it is to be trusted: measured unless its card says otherwise. Raises InvalidInput (BAD_CALIBRATION)."""
        stated = str(self.card.get("trust", "measured")).upper()
        if stated not in Trust.__members__:
            known = ", ".join(each.name.lower() for each in Trust)
            raise InvalidInput(f"card.json: trust {stated.lower()[:40]!r}: {known}", reason="BAD_CALIBRATION")
        return Trust[stated]

    @property
    def held_out_errors(self) -> Sequence[Mapping[str, Any]]:
        """Errors on held-out points by family and group (calibration/fit.py). Raises InvalidInput (BAD_CALIBRATION)."""
        rows = self.card.get("held_out")
        if not isinstance(rows, list) or not all(map(_is_error, rows)):
            message = f"card.json: held_out must list {', '.join((*ERROR_WORDS, *ERROR_NUMBERS))} a family and group"
            raise InvalidInput(message, reason="BAD_CALIBRATION")
        return rows

    @property
    def production(self) -> bool:
        """Whether it was taken on a production GPU; one that was not never answers."""
        return self.card.get("production") is True

    def families(self) -> tuple[str, ...]:
        """Families of operators that were timed, sorted. Raises InvalidInput (BAD_CALIBRATION)."""
        found = self.card["families"]
        if not isinstance(found, dict) or not all(map(FAMILY.fullmatch, found)):
            message = "card.json: families must be a table whose names are small letters, digits and _"
            raise InvalidInput(message, reason="BAD_CALIBRATION")
        return tuple(sorted(found))

    def key_columns(self, family: str) -> tuple[str, ...]:
        """The columns that tell a family's points apart."""
        return tuple(self.card["families"][family]["key"])

    def measured(self) -> Path:
        """The folder of the points. Raises NotFound (NO_MEASUREMENTS) where they were left out, as an installed package does."""
        folder = self.folder / "measurements"
        if self.families() and not folder.is_dir():
            message = (
                f"calibration {self.id} has no measurements here: an installed package leaves them out; the repository and "
                f"the source distribution hold them, so name the folder hwdb/calibrations/{self.sku}/{self.id} of one of those"
            )
            raise NotFound(message, reason="NO_MEASUREMENTS")
        return folder

    def measurements(self, family: str) -> Measurements:
        """Columns of a family (or "census") by name: numbers as float64 or int64, NaN where empty; words as str arrays.

        `kernel` holds names, `held` whether the row's shape must not be fitted. Raises NotFound (NOT_MEASURED).
        """
        if family not in self._measurements:
            path = self.measured() / f"{family}.csv"
            if not FAMILY.fullmatch(family) or not path.is_file():
                raise NotFound(f"calibration {self.id} measured no {family}", reason="NOT_MEASURED", family=family)
            columns = read_columns(path)
            if "kernel" in columns and columns["kernel"].dtype.kind == "i":
                columns["kernel"] = self._kernel_names[columns["kernel"].astype(np.int64)]
            if family in self.card["families"]:
                columns["held"] = held_out(self._shapes(columns, family))
            self._measurements[family] = columns
        return self._measurements[family]

    def choices(self) -> Measurements:
        """Answers of the library's heuristic by column (calibration/benchmarks/choices.py); empty where never asked."""
        return read_arrays(self.measured() / "choices.npz")

    def model(self, family: str) -> dict[str, Any]:
        """What was fitted to a family: arrays of its .safetensors, entries of its .json; empty where nothing was."""
        if family not in self._models:
            path = self.folder / "models" / f"{family}.json"
            plain = read_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
            self._models[family] = {**plain, **read_model(path.with_suffix(ARRAYS))}
        return self._models[family]

    def shapes(self, family: str) -> list[str]:
        """One text a row that tells its shape: the key without how often inputs rotated. See `held_out`."""
        return self._shapes(self.measurements(family), family)

    def _shapes(self, columns: Measurements, family: str) -> list[str]:
        parts = [columns[name].astype(str) for name in self.key_columns(family) if name not in NOT_SHAPE]
        return ["/".join(row) for row in zip(*parts, strict=True)]

    @cached_property
    def _kernel_names(self) -> Column:
        return np.array(["", *read_columns(self.measured() / "kernels.csv")["name"]])

    def files(self) -> tuple[str, ...]:
        """Paths of all files within the folder, sorted."""
        found = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        return tuple(sorted(found))

    def content_sha256(self) -> str:
        """SHA-256 over names and contents of all files; the card counts without the entries that state the hash."""
        digest = hashlib.sha256()
        for name in self.files():
            content = (self.folder / name).read_bytes()
            if name == "card.json":
                content = canonical({key: value for key, value in self.card.items() if key not in UNHASHED})
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        return digest.hexdigest()


def _is_error(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in ERROR_WORDS)
        and all(isinstance(row.get(name), int | float) and abs(row[name]) < ERROR_MAX for name in ERROR_NUMBERS)
    )


def identify(folder: Path) -> Calibration:
    """Write the id and hash of a finished folder into its card. The folder must not change afterwards."""
    calibration = Calibration(folder)
    sha256 = calibration.content_sha256()
    card = {**calibration.card, "content_sha256": sha256, "id": f"{calibration.card['date']}-{sha256[:8]}"}
    (folder / "card.json").write_bytes(canonical(card))
    return Calibration.open(folder)


def canonical(content: Any) -> bytes:
    """JSON that is the same for the same content, one entry a line."""
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def held_out(shapes: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each shape is kept from fitting: one in five, by a hash of its text, on every machine the same."""
    digests = (hashlib.sha256(shape.encode()).digest() for shape in shapes)
    return np.array([int.from_bytes(digest[:4], "big") % HELD_OUT == 0 for digest in digests], bool)


def read_columns(path: Path) -> dict[str, Column]:
    """A CSV file as columns. Raises InvalidInput for rows of unequal length."""
    import csv  # fitting and comparing alone read measurements

    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.reader(stream)
        try:
            head = next(reader, [])
            columns = list(zip(*reader, strict=True)) or [()] * len(head)
        except (ValueError, csv.Error) as error:
            message = f"{path.name} is no table, or has rows of unequal length: {error}"
            raise InvalidInput(message, reason="BAD_CALIBRATION") from error
    if len(columns) != len(head):
        raise InvalidInput(f"{path.name} has {len(columns)} columns under {len(head)} names", reason="BAD_CALIBRATION")
    return {name: _column(values) for name, values in zip(head, columns, strict=True)}


def read_model(path: Path) -> dict[str, Column]:
    """The arrays of a model's file; none where there is no file. Raises InvalidInput (BAD_CALIBRATION)."""
    return unpacked(path.read_bytes(), path.name) if path.is_file() else {}


def read_arrays(path: Path) -> dict[str, Column]:
    """The arrays of an .npz file; none where there is no file."""
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _column(values: Sequence[str]) -> Column:
    """int64 where every value is one, float64 where every value is a number or empty, else text."""
    for kind in (np.int64, np.float64):
        try:
            return np.array([value or "nan" for value in values] if kind is np.float64 else values, dtype=kind)
        except ValueError:
            continue
    return np.array(values, dtype=str)
