"""Sizes that may be arrays: checked products, exact division, bounds, each with an error that names the culprit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture.families import key_rules
from tilewise.server.architecture.model import Size

Keys = dict[str, Any]


class UnlikeShapes(InvalidInput):
    """Candidates that differ in more than sizes, so that one pass cannot answer them as each alone.

    mask: those of one sort; both sorts are to be asked apart
    """

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        super().__init__("the shapes run unlike operators", reason="INVALID_SHAPE", field="architecture")
        self.mask = mask


def agreed(answer: Any) -> bool:
    """The one answer of all candidates to a question. Raises UnlikeShapes where they disagree."""
    if not isinstance(answer, np.ndarray):
        return bool(answer)
    if answer.any() != answer.all():
        raise UnlikeShapes(answer)
    return bool(answer.all())


def invalid(key: str, message: str, reason: str = "INVALID_SHAPE", **metadata: object) -> InvalidInput:
    return InvalidInput(message, reason=reason, field=f"architecture.{key}", **metadata)


def _first(value: Size, bad: Any) -> tuple[int, str]:
    """The first bad value and how to name its candidate; plain ints have no candidate."""
    if isinstance(value, np.ndarray) or isinstance(bad, np.ndarray):
        position = int(np.argmax(bad))
        return int(np.broadcast_to(value, np.shape(bad))[position]), f" (candidate {position})"
    return value, ""


def check_size(key: str, value: Any, least: int = 1) -> Size:
    """`value` as a size: a whole number (or int64 array) from `least` to the limit of its key."""
    limits = key_rules().limits
    most = limits.get(key, limits["default"])
    if type(value) is int and least <= value <= most:
        return value  # the common case, without numpy
    whole = type(value) is int or (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i")
    if not whole or np.size(value) == 0:
        shown = " ".join(str(value)[:40].split())
        raise invalid(key, f"{key} must be a whole number from {least} to {most}, not {shown!r}")
    size: Size = value
    bad = (size < least) | (size > most)
    if np.any(bad):
        shown_size, where = _first(size, bad)
        text = str(shown_size) if abs(shown_size) < 10**12 else "a number of over twelve digits"
        raise invalid(key, f"{key} {text}{where} is out of range: {least} to {most} is allowed", value=text)
    return size


def divide(total: Size, parts: Size, total_key: str, parts_key: str) -> Size:
    """total / parts, which must be exact; the error names both keys and the nearest values that divide."""
    rest = total % parts
    if rest if isinstance(rest, int) else np.any(rest):
        bad = rest != 0
        (t, where), (p, _) = _first(total, bad), _first(parts, bad)
        nearest = f"{t // p * p} or {(t // p + 1) * p}" if t >= p else str(p)
        raise invalid(
            total_key,
            f"{total_key} {t} is no multiple of {parts_key} {p}{where}; the nearest that is: {nearest}",
            reason="NOT_DIVISIBLE",
        )
    quotient: Size = total // parts
    return quotient


def product(keys: Mapping[str, Any], size: Any) -> Size:
    """A size of a family table: a number, a key's name, a list whose product is meant, or {sum = [sizes]}."""
    if isinstance(size, dict):
        return sum((product(keys, part) for part in size["sum"]), start=0)
    if isinstance(size, list):
        result: Size = 1
        for factor in size:
            result = result * product(keys, factor)
        return result
    if isinstance(size, str):
        return need(keys, size)
    number: Size = size
    return number


def spelled(size: Any) -> str:
    """A size of a family table in words."""
    if isinstance(size, dict):
        return " + ".join(map(spelled, size["sum"]))
    return " * ".join(map(spelled, size)) if isinstance(size, list) else str(size).lower()


def need(keys: Mapping[str, Any], key: str) -> Size:
    """A size without which the model cannot be built."""
    value: Size | None = keys.get(key)  # a part may be of a family that lacks it
    if value is None:
        raise invalid(key, f"{key} is needed and not given")
    return value


def column(values: Any, count: int) -> list[Any]:
    """A value for all candidates, or one for each along the last axis, as a list of `count`: of plain numbers, or of lists."""
    if not isinstance(values, np.ndarray):
        return [values] * count
    found: list[Any] = values.T.tolist()
    return found if len(found) == count else found * count
