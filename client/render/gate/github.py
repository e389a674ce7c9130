"""A check as GitHub workflow commands: one annotation a finding, at its line.

GitHub shows ten annotations of a kind for a step, so the tenth says how many more there are.
"""

from __future__ import annotations

from collections import defaultdict

from tilewise.client.render.gate.common import About, counts, database, level, rule_name, sentence, shown
from tilewise.v1.check_pb2 import CheckResponse, Finding

SHOWN = 10
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(answer: CheckResponse, about: About) -> str:
    kinds: dict[str, list[Finding]] = defaultdict(list)
    for finding in shown(answer):
        kinds[_COMMANDS[level(finding)]].append(finding)
    lines = []
    for kind in ("error", "warning", "notice"):
        found = kinds[kind]
        fits = found if len(found) <= SHOWN else found[: SHOWN - 1]
        lines += [annotation(kind, finding) for finding in fits]
        if len(found) > len(fits):
            lines.append(f"::{kind} title=tilewise check::and {len(found) - len(fits)} more: see the job summary")
    lines.append(
        _text(f"tilewise check: {counts(answer, strict=about.strict)} ({database(answer)}; policy {about.policy})")
    )
    return "\n".join(lines) + "\n"


def annotation(kind: str, finding: Finding) -> str:
    places = {"file": finding.path}
    if finding.HasField("line"):
        places |= {"line": str(finding.line), "col": str(finding.column)}
    places["title"] = f"{finding.code} {rule_name(finding.code)}"
    properties = ",".join(f"{name}={_property(value)}" for name, value in places.items())
    return f"::{kind} {properties}::{_text(sentence(finding))}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
