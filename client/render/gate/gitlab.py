"""A check as a GitLab Code Quality report: findings beside the lines of a merge request."""

from __future__ import annotations

import json
from typing import Any

from tilewise.client.render.gate.common import About, level, rule_name, sentence, shown
from tilewise.client.render.gate.sarif import fingerprint
from tilewise.v1.check_pb2 import CheckResponse, Finding

_SEVERITIES = {"error": "major", "warning": "minor", "info": "info"}


def render(answer: CheckResponse, about: About) -> str:
    return json.dumps([_issue(finding) for finding in shown(answer)], indent=2) + "\n"


def _issue(finding: Finding) -> dict[str, Any]:
    return {
        "description": sentence(finding),
        "check_name": f"{finding.code} {rule_name(finding.code)}",
        "fingerprint": fingerprint(finding),
        "severity": _SEVERITIES[level(finding)],
        "location": {"path": finding.path, "lines": {"begin": finding.line or 1}},
    }
