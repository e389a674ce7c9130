"""The text of a config.json (or of our own TOML) -> its keys and its family."""

from __future__ import annotations

import re
from typing import Any

from tilewise.hwdb.errors import InvalidInput, TooLarge
from tilewise.hwdb.texts import read_json, read_toml
from tilewise.server.architecture.families import Family, family, key_rules
from tilewise.server.architecture.stand_in import stood_in
from tilewise.server.deadline import check_alive

LARGEST_BYTES = 2**22  # the longest real config.json seen has 2.9 MiB, for its list of unquantised modules


def parse(text: str) -> dict[str, Any]:
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
    return stood_in(raw)


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


def table_of(raw: dict[str, Any]) -> Family:
    table = family(model_type(raw))
    if table.part_of:
        raise _unreadable(f"model_type {table.name} is a part of {table.part_of}, whose whole config is needed")
    return family(table.wrapper) if table.wrapper and "text_config" in raw else table


def model_type(raw: dict[str, Any]) -> str:
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
