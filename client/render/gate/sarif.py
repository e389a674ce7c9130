"""A check as SARIF 2.1.0 (OASIS standard): one result a finding, at the line and column of the offending key.

What an allowance covers is a suppressed result. GitHub shows 5,000 of at most 25,000 results a run.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from tilewise.client.render.gate.common import About, database, level, sentence
from tilewise.server.gate.rules import Rule, rules
from tilewise.v1.check_pb2 import CheckResponse, Finding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST_RESULTS = 25_000
_LEVELS = {"error": "error", "warning": "warning", "info": "note", "off": "none"}


def render(answer: CheckResponse, about: About) -> str:
    import tilewise

    driver = {
        "name": "tilewise",
        "version": tilewise.__version__,
        "informationUri": "https://pypi.org/project/tilewise/",
        "rules": [_rule(rule) for rule in rules().values()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding) for finding in answer.findings[:MOST_RESULTS]],
        "properties": {"database": database(answer), "policy": about.policy},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    text = " ".join(rule.explanation.split())
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.name.replace("-", " ")},
        "fullDescription": {"text": text},
        "help": {"text": text},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": list(rules()).index(finding.code),
        "level": _LEVELS[level(finding)],
        "message": {"text": sentence(finding)},
        "locations": [{"physicalLocation": _location(finding)}],
        "partialFingerprints": {"tilewise/v1": fingerprint(finding)},
    }
    if finding.suppressed_by:
        result["suppressions"] = [{"kind": "external", "justification": finding.suppressed_by}]
    return result


def _location(finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.path), "uriBaseId": "%SRCROOT%"}}
    if finding.HasField("line"):
        length = len(finding.field.rpartition(".")[2]) + 2 if finding.field else 1  # the key with its quotes
        location["region"] = {
            "startLine": finding.line, "startColumn": finding.column, "endColumn": finding.column + length,
        }  # fmt: skip
    return location


def fingerprint(finding: Finding) -> str:
    """Equal for the same rule about the same key, whatever its line and figures."""
    told = finding.message.partition(":")[0] if finding.message else ""
    parts = (finding.code, finding.path, finding.field, told if not finding.field or finding.code > "TW1" else "")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
