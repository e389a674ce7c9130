"""Sizes that may be arrays: checked products, exact division, bounds, each with an error that names the culprit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture.families import key_rules
from tilewise.server.architecture.model import Size

Keys = dict[str, Any]


def invalid(key: str, message: str, reason: str = "INVALID_SHAPE", **metadata: object) -> InvalidInput:
    return InvalidInput(message, reason=reason, field=f"architecture.{key}", **metadata)


def _candidate(bad: Any) -> tuple[int | None, str]:
    """Position of the first bad candidate and how to say it; (None, "") where sizes are plain ints."""
    if isinstance(bad, np.ndarray):
        first = int(np.argmax(bad))
        return first, f" (candidate {first})"
    return None, ""


def _at(value: Size, position: int | None) -> int:
    return int(value[position]) if isinstance(value, np.ndarray) and position is not None else int(value)


def check_size(key: str, value: Any, least: int = 1) -> Size:
    """`value` as a size: a whole number (or int64 array) from `least` to the limit of its key."""
    limits = key_rules().limits
    most = limits.get(key, limits["default"])
    if isinstance(value, np.ndarray):
        if value.ndim != 1 or value.dtype.kind not in "iu":
            raise invalid(key, f"{key} must be an int or a one-dimensional int64 array")
        bad: Any = (value < least) | (value > most)
        wrong = bool(bad.any())
    elif type(value) is int:
        bad, wrong = True, not least <= value <= most
    else:
        raise invalid(key, f"{key} must be a whole number from {least} to {most}, not {str(value)[:40]!r}")
    if wrong:
        position, where = _candidate(bad)
        shown = _at(value, position)
        text = str(shown) if abs(shown) < 10**12 else f"{shown:.3e}" if abs(shown) < 10**300 else "a huge number"
        raise invalid(key, f"{key} {text}{where} is out of range: {least} to {most} is allowed", value=text)
    size: Size = value
    return size


def divide(total: Size, parts: Size, total_key: str, parts_key: str) -> Size:
    """total / parts, which must be exact; the error names both keys and the nearest values that divide."""
    rest = total % parts
    if np.any(rest):
        position, where = _candidate(rest != 0)
        t, p = _at(total, position), _at(parts, position)
        nearest = f"{t // p * p or p} or {(t // p + 1) * p}"
        raise invalid(
            total_key,
            f"{total_key} {t} is no multiple of {parts_key} {p}{where}; the nearest that is: {nearest}",
            reason="NOT_DIVISIBLE",
            **{total_key: t, parts_key: p},
        )
    return total // parts


def product(keys: Mapping[str, Any], size: Any) -> Size:
    """A size of a family table: a number, a key's name, or a list whose product is meant."""
    if isinstance(size, list):
        result: Size = 1
        for factor in size:
            result = result * product(keys, factor)
        return result
    value: Size = keys[size] if isinstance(size, str) else size
    return value


def need(keys: Keys, key: str) -> Size:
    """A size without which the model cannot be built."""
    value: Size | None = keys[key]
    if value is None:
        raise invalid(key, f"{key} is needed and not given")
    return value
