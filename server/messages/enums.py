"""Enums of the contract and the codes that hwdb uses for the same things."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewise.hwdb import precision, times
from tilewise.server.messages.words import prefix
from tilewise.v1 import prediction_pb2, workload_pb2


def numbers(enum: Any, members: Iterable[Any]) -> dict[int, Any]:
    """From the codes of an IntEnum of hwdb to the numbers of the contract's enum, by their names."""
    return {int(member): enum.Value(prefix(enum.DESCRIPTOR) + member.name) for member in members}


WALLS = numbers(prediction_pb2.Wall, times.Wall)
TRUSTS = numbers(prediction_pb2.Trust, times.Trust)
PRECISIONS = numbers(workload_pb2.Precision, precision.Precision)
STATES = numbers(workload_pb2.State, times.State)
