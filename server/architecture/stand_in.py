"""Models that are no known family: read as one that the caller names, or by their text part alone. The answer says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.server.architecture.families import family, names, unread
from tilewise.server.architecture.sizes import invalid

READ_AS = "tilewise_read_as"  # the key of a config that names the family to read it as
NOTE = "_tilewise_note"  # the key under which a config that was read as another says so
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder_config")
_OF_THE_WHOLE = (
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
    "quantization_config",
)  # said by the outer config for the text part

Raw = dict[str, Any]


def stood_in(raw: Raw) -> Raw:
    """The config as that of a known family; under NOTE what the reader of the answer should know, if it is another one.

    Raises InvalidInput UNKNOWN_MODEL_TYPE for a READ_AS that is no family.
    """
    raw = {key: value for key, value in raw.items() if key != NOTE}
    if READ_AS in raw:
        return _read_as(raw)
    stated = raw.get("model_type")
    if not isinstance(stated, str) or not stated or stated in names() or stated in unread():
        return raw
    part = _text_part(raw)
    if part is None:
        return raw
    key, text = part
    outer = {name: raw[name] for name in _OF_THE_WHOLE if raw.get(name) is not None}
    note = f"model_type {stated[:60]} is not known: its text part {key} ({text['model_type']}) alone is answered, without towers"
    return {**text, **outer, NOTE: note}


def _read_as(raw: Raw) -> Raw:
    named, stated = raw[READ_AS], raw.get("model_type")
    if not isinstance(named, str):
        raise invalid(READ_AS, f"{READ_AS} must name a family, not {str(named)[:40]!r}")
    table = family(named)
    note = f"model_type {str(stated)[:60]} is read as {table.name}, as asked"
    return {**{key: value for key, value in raw.items() if key != READ_AS}, "model_type": table.name, NOTE: note}


def _text_part(raw: Mapping[str, Any], depth: int = 2) -> tuple[str, Raw] | None:
    """(key, config) of the text model inside a config that holds one under a usual name, or inside such a part."""
    for key in _TEXT_PARTS:
        inner = raw.get(key)
        if not isinstance(inner, dict):
            continue
        if inner.get("model_type") in names():
            return key, inner
        deeper = _text_part(inner, depth - 1) if depth > 1 else None
        if deeper is not None:
            return f"{key}.{deeper[0]}", deeper[1]
    return None
