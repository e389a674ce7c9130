"""The text of a config.json (or of our own TOML) -> Architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.hwdb.errors import InvalidInput, TooLarge
from tilewise.hwdb.texts import read_json, read_toml
from tilewise.server.architecture.assemble import architecture
from tilewise.server.architecture.canonical import canonical
from tilewise.server.architecture.families import Family, family, key_rules
from tilewise.server.architecture.model import Architecture, Size
from tilewise.server.architecture.multimodal import multimodal, text_part
from tilewise.server.deadline import check_alive

LARGEST_BYTES = 2**20  # the longest real config.json seen is 0.1 MB


def read(text: str, name: str = "") -> Architecture:
    """Architecture of the text of a config.json, or of our own TOML ([model] with canonical names).

    Raises InvalidInput (UNREADABLE_CONFIG, UNKNOWN_MODEL_TYPE, UNKNOWN_KEY, INVALID_SHAPE, NOT_DIVISIBLE) and
    TooLarge (CONFIG_TOO_LARGE); nothing else, whatever the text.
    """
    return read_with(text, {}, name)


def read_with(text: str, overrides: Mapping[str, Size], name: str = "") -> Architecture:
    """As `read`, with sizes of the (text) model replaced under their canonical names.

    A value may be an int64 array of shape (candidates,): a thousand shapes of one structure are one Architecture.
    Raises besides: InvalidInput that names the first candidate that is impossible.
    """
    raw = _parse(text)
    try:
        result = _assembled(raw, overrides, name)
    except ValueError as error:  # numpy's, where an array is asked as one number
        if not any(isinstance(size, np.ndarray) for size in overrides.values()):
            raise
        message = f"{', '.join(overrides)} decide on structure: such shapes are read one by one"
        raise InvalidInput(message, reason="INVALID_SHAPE", field="architecture") from error
    notes = dict.fromkeys((*result.notes, *(text for key, text in key_rules().notes.items() if raw.get(key))))
    return replace(result, notes=tuple(notes)) if notes else result


def _assembled(raw: dict[str, Any], overrides: Mapping[str, Size], name: str) -> Architecture:
    table = _table(raw)
    if table.parts:
        return multimodal(raw, table, overrides, name)
    keys = canonical(raw, table, overrides)
    keys.update(_class_values(keys["architectures"], table))
    return architecture(keys, table.name, _model_type(raw), name)


def sizes(text: str, overrides: Mapping[str, int]) -> dict[str, int]:
    """Every size of the (text) model by its canonical name, those included that follow from others.

    Raises as `read_with`.
    """
    raw = _parse(text)
    table = _table(raw)
    if table.parts:
        raw, table = text_part(raw, table)
    keys = canonical(raw, table, overrides)
    return {key: value for key, value in keys.items() if type(value) is int}


def _table(raw: dict[str, Any]) -> Family:
    table = family(_model_type(raw))
    return family(table.wrapper) if table.wrapper and "text_config" in raw else table


def _class_values(classes: Any, table: Family) -> dict[str, Any]:
    """What the named model class fixes, by the longest matching end of its name (BertModel, GPT2LMHeadModel)."""
    if not (isinstance(classes, list) and classes and isinstance(classes[0], str)):
        return {}
    endings = sorted((end for end in table.heads if classes[0].endswith(end)), key=len)
    return table.heads[endings[-1]] if endings else {}


def _model_type(raw: dict[str, Any]) -> str:
    """The stated family, or that of a schema known by its keys; foreign files are named as what they are."""
    stated = raw.get("model_type")
    if isinstance(stated, str) and stated:
        return stated
    for schema, signature in key_rules().signatures.items():
        if raw.keys() >= set(signature):
            return schema
    for message, signature in key_rules().foreign.items():
        if raw.keys() >= set(signature):
            raise _unreadable(message)
    raise _unreadable('model_type is missing: it names the family, such as "llama", and nothing is guessed without it')


def _unreadable(message: str) -> InvalidInput:
    return InvalidInput(message, reason="UNREADABLE_CONFIG", field="architecture")


def _parse(text: str) -> dict[str, Any]:
    check_alive()
    if len(text) > LARGEST_BYTES:
        raise TooLarge(
            f"the config is {len(text) / 2**20:.1f} MiB; at most {LARGEST_BYTES >> 20} MiB is read",
            reason="CONFIG_TOO_LARGE",
            field="architecture",
        )
    start = text.lstrip("\ufeff \t\r\n")[:1]
    if not start:
        raise _unreadable("the config is empty; a config.json or a Tilewise TOML is needed")
    is_toml = start not in '{["' or text.lstrip().startswith("[model")
    raw = _parse_toml(text) if is_toml else _parse_json(text)
    if not isinstance(raw, dict):
        raise _unreadable(f"the config is a JSON {type(raw).__name__}, an object is needed")
    return raw


def _parse_json(text: str) -> Any:
    try:
        return read_json(text.lstrip("\ufeff"), finite=False)
    except ValueError as error:
        raise _unreadable(f"the config is no valid JSON: {error}") from error


def _parse_toml(text: str) -> Any:
    """Our own form: one [model] table."""
    try:
        table = read_toml(text)
    except ValueError as error:
        if re.search(r"^[ \t]*+[\w.\"-]++:(\s|$)", text, re.MULTILINE):
            raise _unreadable(
                "the config is YAML, which is not read; give its config.json or a Tilewise TOML"
            ) from error
        raise _unreadable(f"the config is neither JSON nor TOML: {str(error)[:120]}") from error
    model = table.get("model")
    if not isinstance(model, dict):
        raise _unreadable("a Tilewise TOML needs a [model] table")
    return {"model_type": "tilewise", **model}
