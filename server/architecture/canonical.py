"""A family's own keys -> canonical keys (those of the transformers library's Llama), checked."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tilewise.server.architecture.derive import derive
from tilewise.server.architecture.families import Family, is_harmless, key_rules
from tilewise.server.architecture.sizes import Keys, check_size, invalid


def canonical(raw: Mapping[str, Any], family: Family, overrides: Mapping[str, Any]) -> Keys:
    """Every canonical key of the family: its defaults, then what the config says, then `overrides` (canonical names).

    Raises InvalidInput: a key that is not understood, a value of the wrong type or size, sizes that do not divide.
    """
    keys = dict(family.values)
    given: set[str] = set()
    for key, value in _understood(raw, family):
        for target in family.keys[key]:
            if target in given and type(value) is int and keys[target] != value:
                raise invalid(key, f"{key} {value} contradicts another key, which sets {target} to {keys[target]}")
            keys[target] = _checked(key, value, target, family)
            given.add(target)
    for key, value in overrides.items():
        for target in _overridden(key, family):
            keys[target] = _checked(key, value, target, family)
    for conditions, values in family.when:
        if all(keys[key] == value for key, value in conditions.items()):
            keys.update(values)
    derive(keys)
    return keys


def _understood(raw: Mapping[str, Any], family: Family, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys that shape the model; sub-tables of `nested` are read as "table.key"."""
    for name, value in raw.items():
        key = prefix + name
        if key in family.keys:
            yield key, value
        elif key in family.nested and isinstance(value, dict):
            yield from _understood(value, family, f"{key}.")
        elif key not in family.ignored and not (is_harmless(key) or is_harmless(name)):
            _reject_unknown(key, value, family)


def _reject_unknown(key: str, value: Any, family: Family) -> None:
    """A key that may change the shape and is not understood is an error.

    Text, null, false, zero and empty say "none of it"; true is an error where the name speaks of structure.
    """
    rules = key_rules()
    if not value or isinstance(value, str) or rules.neutral.get(key) == value:
        return
    if value is True and not rules.structural.search(key):
        return
    close = difflib.get_close_matches(key, family.keys, n=1, cutoff=0.5)
    hint = f"; the nearest known key is {close[0]}" if close else ""
    raise invalid(
        key,
        f"{key[:60]} = {str(value)[:40]} is not understood for model_type {family.name} and may change the shape{hint}",
        reason="UNKNOWN_KEY",
        unknown=key[:60],
    )


def _overridden(key: str, family: Family) -> tuple[str, ...]:
    if key in family.keys:
        return family.keys[key]
    if key in family.values:
        return (key,)
    close = difflib.get_close_matches(key, family.values, n=1, cutoff=0.5)
    hint = f"; the nearest it has is {close[0]}" if close else ""
    raise invalid(key, f"model_type {family.name} has no {key[:60]}{hint}", reason="UNKNOWN_KEY", unknown=key[:60])


def _checked(key: str, value: Any, target: str, family: Family) -> Any:
    """`value` if it is of the kind its default is; sizes are bounded."""
    default = family.values.get(target)
    if target == "period" and isinstance(value, str) and value:
        value = len(value)  # EXAONE 4 spells it: "LLLG" is three local layers, then a global one
    if value is None or (default is None and isinstance(value, str) and value == "auto"):
        return _absent(key, target, default)
    if isinstance(value, np.ndarray) or type(default) is int or (default is None and type(value) is int):
        return check_size(key, value, _least(target))
    wanted: Any = {bool: bool, str: str, list: list, float: (int, float)}.get(type(default), object)
    if not isinstance(value, wanted):
        raise invalid(key, f"{key} must be {_KINDS[type(default)]}, not {str(value)[:40]!r}")
    return value


def _absent(key: str, target: str, default: Any) -> Any:
    """What an explicit null means: "no" for a switch, "derive it" where that is defined, else an error."""
    if default is None or isinstance(default, list | float) or target in key_rules().nullable:
        return default if isinstance(default, list | float) else None
    if isinstance(default, bool | str):
        return False if isinstance(default, bool) else default
    raise invalid(key, f"{key} is null; a whole number is needed")


def _least(target: str) -> int:
    rules = key_rules()
    return -1 if target in rules.may_be_negative else 0 if target in rules.may_be_zero else 1


_KINDS = {bool: "true or false", str: "text", list: "a list", float: "a number"}
