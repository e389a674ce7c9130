"""The text of a config.json (or of our own TOML) -> Architecture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture.canonical import canonical
from tilewise.server.architecture.dropout import dropout_of
from tilewise.server.architecture.families import key_rules
from tilewise.server.architecture.model import Architecture, Size
from tilewise.server.architecture.multimodal import assembled, text_part
from tilewise.server.architecture.raw import parse, table_of
from tilewise.server.architecture.stand_in import NOTE
from tilewise.server.architecture.stated import defaults_note


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
    raw = parse(text)
    try:
        result = assembled(raw, overrides, name)
    except ValueError as error:  # numpy's, where an array is asked as one number
        if not any(isinstance(size, np.ndarray) for size in overrides.values()):
            raise
        message = f"{', '.join(overrides)} decide on structure: such shapes are read one by one"
        raise InvalidInput(message, reason="INVALID_SHAPE", field="architecture") from error
    known = (note for key, note in key_rules().notes.items() if raw.get(key))
    notes = dict.fromkeys(filter(None, (raw.get(NOTE), *result.notes, *known, defaults_note(text, overrides))))
    table = table_of(raw)
    own, family = text_part(raw, table) if table.parts else (raw, table)
    return replace(result, notes=tuple(notes), dropout=dropout_of(own, family.name))


def sizes(text: str, overrides: Mapping[str, int]) -> dict[str, int]:
    """Every size of the (text) model by its canonical name, those included that follow from others.

    Raises as `read_with`.
    """
    raw = parse(text)
    table = table_of(raw)
    if table.parts:
        raw, table = text_part(raw, table)
    keys = canonical(raw, table, overrides)
    return {key: value for key, value in keys.items() if type(value) is int}
