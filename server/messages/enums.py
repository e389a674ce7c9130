"""Enums of the contract and the words and codes that hwdb and server use for the same things."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewise.hwdb import precision, times
from tilewise.hwdb.errors import InvalidInput
from tilewise.v1 import prediction_pb2, workload_pb2


def word(enum: Any, number: int, field: str) -> str:
    """PHASE_TRAIN -> "train"; "" for unspecified. Raises InvalidInput for a number that the enum lacks."""
    known = enum.DESCRIPTOR.values_by_number
    if number not in known:
        raise InvalidInput(
            f"{field} {number} is no value of {enum.DESCRIPTOR.name}", reason="INVALID_WORKLOAD", field=field
        )
    name: str = known[number].name
    return name.removeprefix(prefix(enum)).lower() if number else ""


def number(enum: Any, word: str) -> Any:
    """ "train" -> PHASE_TRAIN; "" -> unspecified."""
    return enum.Value(prefix(enum) + word.upper()) if word else 0


def prefix(enum: Any) -> str:
    first: str = enum.DESCRIPTOR.values_by_number[0].name
    return first.removesuffix("UNSPECIFIED")


def numbers(enum: Any, members: Iterable[Any]) -> dict[int, Any]:
    """From the codes of an IntEnum of hwdb to the numbers of the contract's enum, by their names."""
    return {int(member): enum.Value(prefix(enum) + member.name) for member in members}


WALLS = numbers(prediction_pb2.Wall, times.Wall)
TRUSTS = numbers(prediction_pb2.Trust, times.Trust)
PRECISIONS = numbers(workload_pb2.Precision, precision.Precision)
STATES = numbers(workload_pb2.State, times.State)
