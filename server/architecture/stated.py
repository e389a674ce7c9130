"""Which sizes a config states and which are its class's own defaults: a default that decides an answer is listed, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.hwdb.remembered import TEXT_MAX
from tilewise.server.architecture.families import Family, key_rules
from tilewise.server.architecture.model import Architecture
from tilewise.server.architecture.multimodal import assembled, text_part
from tilewise.server.architecture.raw import parse, table_of


def check_stated(text: str, overrides: Iterable[str] = ()) -> None:
    """Raises InvalidInput (DEFAULTED_SIZES) for a config that leaves its shape to its class, unless it is a published one.

    A published file names its `architectures` or `transformers_version`: transformers leaves out what equals the default.
    overrides: canonical sizes that are given beside the text
    """
    rules, raw = key_rules().stated, parse(text)
    left = defaulted(text, frozenset(overrides))
    few = len(left) <= rules["most"] and not any(key in rules["essential"] for key in left)
    if few or any(raw.get(key) for key in rules["published"]):
        return
    raise InvalidInput(
        f"the config does not state {_listed(left)} (the defaults of {table_of(raw).name}): state them, or --allow-defaults",
        reason="DEFAULTED_SIZES",
        field="architecture",
    )


def defaults_note(text: str, overrides: Iterable[str] = ()) -> str:
    """The sizes that decide time or memory and that the class filled in, in one sentence; "" where there are none."""
    left = defaulted(text, frozenset(overrides))
    return f"not stated, so the class's default: {_listed(left)}" if left else ""


def _listed(left: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {size}" for key, size in left.items())


def defaulted(text: str, overrides: frozenset[str]) -> Mapping[str, int]:
    """Sizes of the (text) model that neither the text nor an override states and that change what is built, by canonical name."""
    long = len(text) + sum(map(len, overrides)) > TEXT_MAX
    return (_defaulted.__wrapped__ if long else _defaulted)(text, overrides)


@lru_cache(maxsize=256)
def _defaulted(text: str, overrides: frozenset[str]) -> Mapping[str, int]:
    raw = parse(text)
    table = table_of(raw)
    own, family = text_part(raw, table) if table.parts else (raw, table)
    silent, essential = _silent(own, family, overrides), key_rules().stated["essential"]
    as_it_is = _built(raw, {}) if silent else None
    if as_it_is is None:
        return {}  # reading it says what is wrong
    left = [key for key, size in silent.items() if _built(raw, {key: 2 * size}) != as_it_is]
    return {
        key: silent[key]
        for key in sorted(left, key=lambda key: essential.index(key) if key in essential else len(essential))
    }


def _silent(raw: Mapping[str, Any], family: Family, overrides: frozenset[str]) -> dict[str, int]:
    """Sizes of the family that a config may state and this one does not."""
    keys = {key for key in family.keys if key in raw or _nested(raw, key)} | overrides
    given = {target for key in keys for target in family.keys.get(key, (key,))}
    possible = {target for targets in family.keys.values() for target in targets} - given
    return {key: size for key, size in family.values.items() if key in possible and type(size) is int and size > 0}


def _nested(raw: Mapping[str, Any], key: str) -> bool:
    outer, dot, inner = key.partition(".")
    within = raw.get(outer)
    return bool(dot) and isinstance(within, dict) and inner in within


def _built(raw: dict[str, Any], overrides: Mapping[str, int]) -> Architecture | None:
    """What a config builds; None where it cannot be."""
    try:
        return replace(assembled(raw, overrides, ""), longest=0)  # which changes a note alone
    except TilewiseError:
        return None
