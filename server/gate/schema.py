"""The JSON schema of tilewise.toml, for editors: built from what `policy` reads, so that both say the same."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import get_annotations
from typing import Any

from tilewise.hwdb.times import Trust
from tilewise.server.gate.metrics import LEFT_ON_TABLE, METRICS
from tilewise.server.gate.policy import ALLOW, BUDGET, CHECK, LIMITS, SEVERITIES, WORKLOAD
from tilewise.server.gate.rules import rules
from tilewise.server.workload import CHOICES, Workload

TEXT = {"type": "string", "minLength": 1}
NAMES = {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]}
QUANTITY = {"type": ["string", "number"]}
TYPES = {int: {"type": "integer", "minimum": 1}, float: {"type": "number", "minimum": 0}, str: TEXT}
ABOUT = {
    "gpus": "SKUs to judge on, as `tilewise gpus list` names them",
    "hwdb": 'calibrations must be from then on, as ">=2026.11"',
    "config": "pattern relative to this file: * within a folder, ** across folders",
    "metric": "what is limited; unset: time_s",
    "max_regression": 'share by which the metric may get worse than the base, as "2 %"',
    "limit": 'absolute limit with its unit, as "310 ms", "72 GiB", "40 %"',
    "max_left_on_table": 'share of the step that the best free win may save, as "5 %"; needs no base',
    "min_trust": "weakest source that is judged; unset: published",
    "message": "shown where the budget is broken",
    "reason": "why the finding is let through",
    "until": "last day on which it is, as 2027-03-01",
}


def schema() -> dict[str, Any]:
    """As JSON Schema 2020-12."""
    check = {
        "gpus": NAMES, "hwdb": {"type": "string"}, "workload": _list(_workload()), "budget": _list(_budget()),
        "allow": {"type": "array", "items": _allow()},
        "rules": _table({code: _one_of(SEVERITIES) for code in rules()}, rules()),
    }  # fmt: skip
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tilewise.toml, the policy of `tilewise check`",
        **_table({"check": _table(check, CHECK, ("gpus", "workload", "budget"))}, ("check",), ("check",)),
    }


def _workload() -> dict[str, Any]:
    known: dict[str, Any] = {"name": TEXT}
    for name, kind in get_annotations(Workload).items():
        known[name] = _one_of(CHOICES[name]) if name in CHOICES else TYPES[{"int": int, "float": float}.get(kind, str)]
    return _table(known, WORKLOAD, ("name", "phase"))


def _budget() -> dict[str, Any]:
    known = {
        "config": TEXT, "metric": _one_of([name for name in METRICS if name != LEFT_ON_TABLE]), "gpus": NAMES,
        "workloads": NAMES, **dict.fromkeys(LIMITS, QUANTITY), "min_trust": _one_of([trust.name.lower() for trust in Trust]),
        "severity": _one_of(SEVERITIES[1:]), "message": {"type": "string"},
    }  # fmt: skip
    return _table(known, BUDGET, ("config",)) | {"anyOf": [{"required": [limit]} for limit in LIMITS]}


def _allow() -> dict[str, Any]:
    known = {"code": _one_of(rules()), "config": TEXT, "reason": TEXT, "until": {"type": "string", "format": "date"}}
    return _table(known, ALLOW, ("code", "reason"))


def _table(known: dict[str, Any], allowed: Iterable[str], required: Iterable[str] = ()) -> dict[str, Any]:
    told = {key: known[key] | ({"description": ABOUT[key]} if key in ABOUT else {}) for key in allowed}
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": told}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def _one_of(words: Iterable[str]) -> dict[str, Any]:
    return {"enum": list(words)}
