"""The text of a config.json (or of our own TOML) -> Architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tilewise.hwdb.errors import InvalidInput, TooLarge
from tilewise.server.architecture.assemble import language_model
from tilewise.server.architecture.canonical import canonical
from tilewise.server.architecture.families import family
from tilewise.server.architecture.model import Architecture, Size

LARGEST_BYTES = 4 * 2**20  # the longest real config.json seen is 0.1 MB


def read(text: str, name: str = "") -> Architecture:
    """Architecture of a config.json's text.

    Raises InvalidInput (UNREADABLE_CONFIG, UNKNOWN_MODEL_TYPE, UNKNOWN_KEY, INVALID_SHAPE, NOT_DIVISIBLE) and TooLarge.
    """
    return read_with(text, {}, name)


def read_with(text: str, overrides: Mapping[str, Size], name: str = "") -> Architecture:
    """As `read`, with canonical sizes replaced; an int64 array of shape (candidates,) makes a thousand shapes one."""
    raw = _parse(text)
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise _unreadable('model_type is missing: it names the family, such as "llama"')
    table = family(model_type)
    return language_model(canonical(raw, table, overrides), table.name, model_type, name)


def _unreadable(message: str) -> InvalidInput:
    return InvalidInput(message, reason="UNREADABLE_CONFIG", field="architecture")


def _parse(text: str) -> dict[str, Any]:
    if len(text) > LARGEST_BYTES:
        raise TooLarge(
            f"the config is {len(text) / 2**20:.1f} MiB; at most {LARGEST_BYTES >> 20} MiB is read",
            reason="CONFIG_TOO_LARGE",
            field="architecture",
        )
    if not text.strip():
        raise _unreadable("the config is empty; a config.json or a Tilewise TOML is needed")
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise _unreadable(f"the config is no valid JSON: {error}") from error
    except RecursionError as error:
        raise _unreadable("the config is nested too deeply") from error
    if not isinstance(raw, dict):
        raise _unreadable(f"the config is a JSON {type(raw).__name__}, not an object")
    return raw
