"""The rules of the gate, as rules.toml states them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from tilewise.hwdb.record import Record


class Rule(Record, kw_only=True):
    """field, multiple, split, follows: of rules about one size; growth: share of a step."""

    code: str
    name: str
    severity: str
    explanation: str
    field: str = ""
    multiple: int = 0
    split: bool = False
    follows: str = ""
    growth: float = 0.0


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by its code."""
    text = (files("tilewise.server.gate") / "rules.toml").read_text(encoding="utf-8")
    return {code: Rule(code=code, **fields) for code, fields in tomllib.loads(text).items()}
