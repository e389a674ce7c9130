"""Family tables: what the keys of one model_type are called, what absent ones mean, and how its model code is built.

One TOML file a model_type under families/, named after it; `base` inherits from another. See families/_base.toml for the
words. Only the files of the family asked for are parsed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from tilewise.hwdb import packaged
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record

_PACKAGE = "tilewise.server.architecture"
KEY_MAX = 200  # characters of a key of a config; the longest that is known has 60


@dataclass(frozen=True, slots=True)
class Family:
    """One model_type.

    source:  where its facts are read
    values:  canonical key -> value of an absent key (None: derived from others) or fixed by the model code
    keys:    the config's name of a key -> the canonical names it sets
    nested:  names of sub-tables whose keys are read as "table.key"
    ignored: keys of this family that do not change the shape
    only:    the config's name of a key -> the one size it may state, because the model's class has it whatever the key says
    zero_is_absent: keys of the config whose 0 says that there is none of it
    when:    (conditions, values, refusal), in order: values that hold, or what is refused, where every named key has the given
             value, or another one than {not = value}; "absent": none
    parts:   sub-configs of a multimodal model: "text", "vision", "audio" -> {key, family}; always: whatever family it states
    left_out: sub-configs of towers that are not read: the answer says that it lacks them
    wrapper: table for a config of this model_type that holds its text model as a part
    needed:  canonical keys without which there is no model, and that have no default
    part_of: the model_type without whose other parts this one is no model
    heads:   class name in `architectures` -> values that class fixes (BertModel has no vocabulary head)
    """

    name: str
    values: dict[str, Any]
    keys: dict[str, tuple[str, ...]]
    source: str = ""
    nested: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    only: dict[str, Any] = field(default_factory=dict)
    zero_is_absent: frozenset[str] = frozenset()
    when: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = ()
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    wrapper: str = ""
    part_of: str = ""
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    needed: tuple[str, ...] = ()


@cache
def names() -> tuple[str, ...]:
    """Every model_type that can be read."""
    stems = (
        name.removesuffix(".toml")
        for name in os.listdir(f"{packaged.folder(_PACKAGE)}/families")
        if name.endswith(".toml")
    )
    return tuple(sorted(stem for stem in stems if not stem.startswith("_")))


@cache
def family(model_type: str) -> Family:
    """The table of a model_type; InvalidInput UNKNOWN_MODEL_TYPE lists close names, if any are close."""
    if model_type in unread():
        _, why = unread()[model_type]
        message = f"model_type {model_type} is known and not read: {why}; --as FAMILY reads it as one that is (tilewise families)"
        raise InvalidInput(message, reason="UNKNOWN_MODEL_TYPE", field="architecture.model_type", model_type=model_type)
    if model_type not in names():
        import difflib

        close = difflib.get_close_matches(model_type, names(), n=3, cutoff=0.7)
        hint = f"the closest: {', '.join(close)}" if close else "none is close"
        raise InvalidInput(
            f"unknown model_type {model_type[:60]!r}; {len(names())} are known (tilewise families), {hint}; "
            "--as FAMILY reads it as one of them",
            reason="UNKNOWN_MODEL_TYPE",
            field="architecture.model_type",
            model_type=model_type[:60],
        )
    return _load(model_type)


@cache
def unread() -> dict[str, tuple[str, str]]:
    """Model types of the transformers library that are not read: (kind, why); kind "other": no model of the kind that is read."""
    groups = packaged.toml(_PACKAGE, "unread.toml")["group"]
    return {name: (group["kind"], group["why"]) for group in groups for name in group["names"]}


@cache
def read_in_part() -> tuple[str, ...]:
    """Model types of the transformers library whose text part alone is answered."""
    return tuple(packaged.toml(_PACKAGE, "unread.toml")["text_part"])


@cache
def _load(name: str) -> Family:
    table = packaged.toml(_PACKAGE, f"families/{name}.toml")
    base = _load(table["base"]) if "base" in table else Family(name, {}, {})
    optional, absent = table.get("optional", ()), table.get("absent", ())
    defaults, fixed = table.get("defaults", {}), table.get("fixed", {})
    aliases = {key: (to,) if isinstance(to, str) else tuple(to) for key, to in table.get("keys", {}).items()}
    own = {key: (key,) for key in (*optional, *defaults)}
    unread = {*fixed, *table.get("ignored", ())}
    kept = {key: to for key, to in {**base.keys, **own}.items() if key not in unread}
    return Family(
        name=name,
        values={**base.values, **dict.fromkeys((*absent, *optional)), **defaults, **fixed},
        keys={**kept, **aliases},
        source=table.get("source", ""),
        nested=base.nested | set(table.get("nested", ())),
        ignored=base.ignored | set(table.get("ignored", ())),
        only={**base.only, **table.get("only", {})},
        zero_is_absent=base.zero_is_absent | set(table.get("zero_is_absent", ())),
        when=base.when
        + tuple((rule["if"], rule.get("set", {}), rule.get("refuse", "")) for rule in table.get("when", ())),
        parts={**base.parts, **table.get("parts", {})},
        left_out=base.left_out | set(table.get("left_out", ())),
        wrapper=table.get("wrapper", ""),
        part_of=table.get("part_of", ""),
        heads={**base.heads, **table.get("heads", {})},
        needed=(*base.needed, *table.get("needed", ())),
    )


class KeyRules(Record):
    """Knowledge about keys of any family; keys.toml says what each list means."""

    harmless: frozenset[str]
    patterns: re.Pattern[str]
    structural: re.Pattern[str]
    may_be_zero: frozenset[str]
    may_be_negative: frozenset[str]
    may_be_listed: frozenset[str]
    nullable: frozenset[str]
    positive: frozenset[str]
    activations: frozenset[str]
    rotations: frozenset[str]
    one_for_all: frozenset[str]
    kinds: dict[str, type]
    neutral: dict[str, Any]
    limits: dict[str, int]
    notes: dict[str, str]
    signatures: dict[str, list[str]]
    foreign: dict[str, list[str]]
    stated: dict[str, Any]


@cache
def key_rules() -> KeyRules:
    table = packaged.toml(_PACKAGE, "keys.toml")
    harmless = table.pop("harmless")
    kinds = {**dict.fromkeys(table.pop("lists"), list), **dict.fromkeys(table.pop("texts"), str)}
    rules: dict[str, Any] = {
        key: frozenset(value) if isinstance(value, list) else value for key, value in table.items()
    }
    return KeyRules(
        **{
            **rules,
            "kinds": kinds,
            "harmless": frozenset(harmless["names"]),
            "patterns": re.compile("|".join(harmless["patterns"])),
            "structural": re.compile("|".join(table["structural"])),
        }
    )


def is_harmless(key: str) -> bool:
    return len(key) <= KEY_MAX and _is_harmless(key)


@lru_cache(4096)
def _is_harmless(key: str) -> bool:
    rules = key_rules()
    return key in rules.harmless or rules.patterns.search(key) is not None
