"""A family's own keys -> canonical keys (those of the transformers library's Llama), checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture.derive import derive
from tilewise.server.architecture.families import Family, is_harmless, key_rules
from tilewise.server.architecture.model import Size
from tilewise.server.architecture.per_layer import by_kind
from tilewise.server.architecture.sizes import Keys, agreed, check_size, invalid, need, product, spelled

_KINDS = {bool: "true or false", str: "text", list: "a list of words or numbers", float: "a number", dict: "an object"}


def canonical(raw: Mapping[str, Any], family: Family, overrides: Mapping[str, Size]) -> Keys:
    """Every canonical key of the family: its defaults, then what the config says, then `overrides` (canonical names).

    Raises InvalidInput: a key that is not understood, a value of the wrong type or size, sizes that do not divide.
    """
    for table in ("rope_parameters", "rope_scaling"):
        _check_rotation(table, raw.get(table))
    keys = dict(family.values)
    given: set[str] = set()
    raw, own_values = by_kind(raw, family)
    for key, value in _understood(raw, family):
        for target in family.keys[key]:
            if target in given and type(value) is int and keys[target] != value:
                raise invalid(key, f"{key} {value} contradicts another key, which sets {target} to {keys[target]}")
            absent = key in family.zero_is_absent and value == 0
            keys[target] = None if absent else _checked(key, value, target, family)
            given.add(target)
    _hold(raw, family, keys)
    _hold_depth(keys)
    _override(keys, overrides, family)
    for key in family.needed:
        need(keys, key)
    for conditions, values, refusal in family.when:
        if all(_is(keys[key], value) for key, value in conditions.items()):
            if refusal:
                raise invalid(next(iter(conditions)), f"{refusal} is not supported for model_type {family.name}")
            keys.update(values)
    if own_values is not None:
        kinds = {**keys["layer_values"], **own_values}
        keys["layer_values"] = {
            kind: {**keys["layer_values"].get(kind, {}), **own_values.get(kind, {})} for kind in kinds
        }
    derive(keys)
    keys["stated_length"] = _stated_length(raw, keys.get("max_position_embeddings"))
    return keys


def _stated_length(raw: Mapping[str, Any], positions: Size | None) -> Size:
    """Tokens that a config was made for: its positions, or more where a rotary embedding is stretched; 0: it does not say."""
    table = raw.get("rope_parameters") or raw.get("rope_scaling")
    if positions is None or isinstance(positions, np.ndarray) or not isinstance(table, dict):
        return 0 if positions is None else positions
    kind, factor = table.get("rope_type", table.get("type")), table.get("factor")
    if kind not in ("linear", "dynamic", "yarn") or not isinstance(factor, int | float) or not 1 <= factor <= 10**6:
        return positions
    before = table.get("original_max_position_embeddings")
    return max(positions, min(int((before if isinstance(before, int) else positions) * factor), 2**40))


def _is(value: Any, wanted: Any) -> bool:
    """Whether a condition holds: a value, "absent", or {not = either}; null is 0 where a number is wanted."""
    if isinstance(wanted, dict):
        return not _is(value, wanted["not"])
    if wanted == "absent":
        return value is None
    if value is None and not isinstance(wanted, bool):
        value = 0
    return agreed(value == wanted)


def _hold(raw: Mapping[str, Any], family: Family, keys: Keys) -> None:
    """Keys that may state one size alone, such as a derived one that the library writes into every file."""
    for key, size in family.only.items():
        outer, _, inner = key.rpartition(".")
        table = raw.get(outer, {}) if outer else raw
        value = table.get(inner) if isinstance(table, dict) else None
        if value is not None and value != product(keys, size):
            must = f"it must be {spelled(size)}, as {family.name} has it whatever the key says"
            raise invalid(_short(key), f"{_short(key)} = {_short(value)} is not supported: {must}")


def _check_rotation(key: str, table: Any, depth: int = 2) -> None:
    """Raises InvalidInput for a rotary embedding that no class has; a table may hold one a kind of layer."""
    if not isinstance(table, dict):
        return
    kind, known = table.get("rope_type", table.get("type")), key_rules().rotations
    if kind is not None and str(kind) not in known:
        raise invalid(
            key, f"{key} has rope_type {_short(kind)!r}, which is not known; known are {', '.join(sorted(known))}"
        )
    for name, inner in table.items() if depth else ():
        _check_rotation(f"{key}.{_short(name)}", inner, depth - 1)


def _hold_depth(keys: Keys) -> None:
    """Some classes build the layers that a list names, whatever num_hidden_layers says: both must agree."""
    listed, depth = keys.get("layer_letters") or keys.get("layer_types"), keys.get("num_hidden_layers")
    if keys.get("depth_is_listed") and listed and depth not in (None, len(listed)):
        raise invalid(
            "num_hidden_layers", f"num_hidden_layers {depth} is not the {len(listed)} layers that the config lists"
        )


def _understood(raw: Mapping[str, Any], family: Family, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys that shape the model; sub-tables of `nested` are read as "table.key"."""
    for name, value in raw.items():
        key = prefix + name
        if name in key_rules().positive and type(value) in (int, float) and value <= 0:
            raise invalid(name, f"{name} {value} is out of range: it must be more than 0")
        if key in family.keys:
            yield key, value
        elif key in family.nested and isinstance(value, dict):
            yield from _understood(value, family, f"{key}.")
        elif not (key in family.ignored or key in family.only) and not (is_harmless(key) or is_harmless(name)):
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
    raise _unknown(key, f"{_short(key)} = {_short(value)} is not understood for model_type {family.name}", family.keys)


def _unknown(key: str, message: str, known: Iterable[str]) -> InvalidInput:
    import difflib

    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"the nearest known key is {close[0]}" if close else "no known key is near"
    return invalid(_short(key), f"{message} and may change the shape; {hint}", "UNKNOWN_KEY", unknown=_short(key))


def _short(value: object) -> str:
    return " ".join(str(value)[:60].split())


def _override(keys: Keys, overrides: Mapping[str, Size], family: Family) -> None:
    lengths = {value.size for value in overrides.values() if isinstance(value, np.ndarray)}
    if len(lengths) > 1:
        raise InvalidInput(
            f"candidates differ in number: {', '.join(map(str, sorted(lengths)))}; every array must have as many",
            reason="INVALID_SHAPE",
            field="overrides",
        )
    for key, value in overrides.items():
        if key not in family.keys and key not in family.values:
            raise _unknown(key, f"model_type {family.name} has no {_short(key)}: it cannot be varied", family.values)
        for target in family.keys.get(key, (key,)):
            if isinstance(value, np.ndarray) and target in key_rules().one_for_all:
                raise invalid(key, f"{key} decides the kinds of layers: it must be one number for all candidates")
            keys[target] = _checked(key, value, target, family)


def _checked(key: str, value: Any, target: str, family: Family) -> Any:
    """`value` if it is of the kind its default is; sizes are bounded."""
    default = family.values.get(target)
    value = _plain(value, target)
    if value is None or (default is None and isinstance(value, str) and value == "auto"):
        return _absent(key, target, default)
    if target == "hidden_act" and isinstance(value, str) and value not in key_rules().activations:
        raise _unknown_activation(key, value)
    kind = type(default)
    if default is None:
        kind = key_rules().kinds.get(target, int)
    if kind is int:
        return check_size(key, value, _least(target))
    if not _is_kind(value, kind):
        raise invalid(key, f"{key} must be {_KINDS[kind]}, not {_short(value)!r}")
    return value


def _unknown_activation(key: str, value: str) -> InvalidInput:
    import difflib

    close = difflib.get_close_matches(value, sorted(key_rules().activations), n=1, cutoff=0.6)
    hint = f"the nearest is {close[0]}" if close else "silu, gelu and relu are, and others of transformers' ACT2FN"
    return invalid(key, f"{key} {_short(value)!r} is no activation function that is known; {hint}")


def _is_kind(value: Any, kind: type) -> bool:
    if kind is float:
        return type(value) in (int, float) and 0 <= value <= 1000  # factors: of rotary width, of feed-forward width
    if kind is list:
        return isinstance(value, list) and all(type(entry) in (str, int) for entry in value)
    return isinstance(value, kind)


def _plain(value: Any, target: str) -> Any:
    """The same value in its plainest form."""
    if isinstance(value, np.integer):
        return int(value)
    if target == "period" and isinstance(value, str) and value:
        return len(value)  # EXAONE 4 spells it: "LLLG" is three local layers, then a global one
    if isinstance(value, list) and target in key_rules().may_be_listed and len(set(map(str, value))) == 1:
        return value[0]
    return value


def _absent(key: str, target: str, default: Any) -> Any:
    """What an explicit null means: what an absent key means, or "derive it" where that is defined, else an error."""
    if type(default) is not int:
        return default
    if target in key_rules().nullable:
        return None
    raise invalid(key, f"{key} is null; a whole number is needed")


def _least(target: str) -> int:
    rules = key_rules()
    return -1 if target in rules.may_be_negative else 0 if target in rules.may_be_zero else 1
