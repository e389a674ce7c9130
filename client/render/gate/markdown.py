"""A check as markdown: for the comment on a pull request and for the summary of a job.

The hidden marker in the first line lets whoever posts it update one comment. Texts from configurations and policies are
escaped, and the whole stays below GitHub's limit for a comment (65,536 characters).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewise.client.render.gate.common import About, counts, database, level, ratio, rule_name, shown, verdict_word
from tilewise.client.render.text import seconds
from tilewise.server.gate.words import band, change, value
from tilewise.server.messages.words import word
from tilewise.v1.check_pb2 import (
    VERDICT_ERROR,
    VERDICT_FAIL,
    VERDICT_NOT_JUDGED,
    VERDICT_PASS,
    VERDICT_UNCERTAIN,
    CheckResponse,
    Comparison,
    Finding,
)
from tilewise.v1.prediction_pb2 import Wall

MOST_ROWS, MOST_FINDINGS, MOST_TEXT = 60, 40, 300
ICONS = {"pass": "✅ pass", "FAIL": "❌ fail", "uncertain": "⚠️ uncertain", "error": "⛔ not evaluated",
         "not judged": "⚪ not judged", "warn": "⚠️ warning", "allowed": "🔕 allowed"}  # fmt: skip

HEADLINES = {
    VERDICT_ERROR: "⛔ not evaluated",
    VERDICT_FAIL: "❌ fails",
    VERDICT_UNCERTAIN: "⚠️ uncertain",
    VERDICT_NOT_JUDGED: "⚪ not judged",
    VERDICT_PASS: "✅ passes",
}


WORST_FIRST = list(HEADLINES)


def render(answer: CheckResponse, about: About) -> str:
    rows = sorted(answer.comparisons, key=lambda each: WORST_FIRST.index(each.verdict))
    parts = [f"<!-- tilewise-check:{_marker(about.policy)} -->", f"### {headline(answer, about.strict)}"]
    if rows:
        parts.append(_table(rows, about.strict))
    parts += _layers(rows)
    parts += _findings(shown(answer))
    if answer.unchanged_paths:
        parts.append(f"No shape change: {_some(map(_code, answer.unchanged_paths))}.")
    parts.append(
        f"<sub>tilewise {_version()}, {_escaped(database(answer))} · policy {_code(about.policy)} · reproduce: {_code(about.command)}</sub>"
    )
    return "\n\n".join(parts) + "\n"


def headline(answer: CheckResponse, strict: bool) -> str:
    """The verdict, and the change that matters most."""
    if not answer.comparisons and answer.verdict not in WORST_FIRST[:-1]:
        return "✅ Tilewise: no shape change"
    verdict = HEADLINES[answer.verdict]
    if strict and answer.verdict == VERDICT_UNCERTAIN:
        verdict = HEADLINES[VERDICT_FAIL]
    judged = [each for each in answer.comparisons if each.HasField("ratio") and each.verdict != VERDICT_ERROR]
    worst = min(judged, key=lambda each: (WORST_FIRST.index(each.verdict), -abs(each.ratio - 1)), default=None)
    most = f": {_escaped(worst.path)} {worst.metric} {change(worst.ratio)}" if worst is not None else ""
    return f"Tilewise {verdict}{most} — {counts(answer, strict=strict)}"


def _table(rows: list[Comparison], strict: bool) -> str:
    lines = [
        "| config | GPU, workload | metric | base | head | change | limit | verdict |",
        "|---|---|---|--:|--:|--:|---|---|",
    ]
    lines += [_row(each, strict) for each in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        lines.append(f"| and {len(rows) - MOST_ROWS} more | | | | | | | |")
    return "\n".join(lines)


def _row(each: Comparison, strict: bool) -> str:
    base = value(each.metric, each.base) if each.HasField("base") else "new"
    head = value(each.metric, each.head)
    if each.verdict == VERDICT_ERROR:
        base = head = "-"
    moved = _whole(change(each.ratio)) if each.HasField("ratio") else "-"
    if bounds := band(ratio(each)):
        moved += f"<br>{_whole(bounds)}"
    where = f"{_whole(_escaped(each.gpu))}<br>{_escaped(each.workload)}"
    verdict = ICONS[verdict_word(each, strict=strict)]
    cells = (
        _code(each.path),
        where,
        each.metric,
        _whole(base),
        _whole(head),
        moved,
        _escaped(each.limit),
        _whole(verdict),
    )
    return "| " + " | ".join(cells) + " |"


def _whole(text: str) -> str:
    """Text that is not broken over lines."""
    return text.replace(" ", "&nbsp;").replace("-", "\u2011")


def _layers(rows: list[Comparison]) -> list[str]:
    """What changed inside, folded, once for each step."""
    seen: dict[tuple[str, str, str], Comparison] = {}
    for each in rows:
        if each.layers:
            seen.setdefault((each.path, each.gpu, each.workload), each)
    lines = [
        f"| {_code(each.path)} | {_escaped(each.workload)} | {layer.name} | {seconds(layer.base_s)} | {seconds(layer.head_s)} "
        f"| {word(Wall.DESCRIPTOR, layer.wall).replace('_', ' ')} |"
        for each in list(seen.values())[:MOST_ROWS]
        for layer in each.layers[:3]
    ]  # fmt: skip
    if not lines:
        return []
    table = ["| config | workload | layer | base | head | wall |", "|---|---|---|--:|--:|---|", *lines[:MOST_ROWS]]
    return ["<details><summary>Layers that changed most</summary>", "\n".join(table), "</details>"]


def _findings(findings: list[Finding]) -> list[str]:
    lines = [
        f"- **{level(each)}** {each.code} {rule_name(each.code)}, {_code(_place(each))}: {_escaped(each.message)}"
        + (f"<br>fix: {_escaped(each.fix)}" if each.fix else "")
        for each in findings[:MOST_FINDINGS]
    ]
    if len(findings) > MOST_FINDINGS:
        lines.append(f"- and {len(findings) - MOST_FINDINGS} more")
    return ["\n".join(lines)] if lines else []


def _place(finding: Finding) -> str:
    return f"{finding.path}:{finding.line}" if finding.HasField("line") else finding.path


def _some(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - MOST_FINDINGS} more" if len(known) > MOST_FINDINGS else ""
    return ", ".join(known[:MOST_FINDINGS]) + more


def _escaped(text: str) -> str:
    """Text that stays text: no markup, no HTML, no mention of a person, no second line."""
    short = " ".join(text.split())[:MOST_TEXT]
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", short.replace("&", "&amp;").replace("<", "&lt;")).replace("@", "@\u200b")


def _code(text: str) -> str:
    """Text as code; a backtick or a bar would end it."""
    return "`" + " ".join(text.split())[:MOST_TEXT].replace("`", "'").replace("|", "\u2223") + "`"


def _marker(text: str) -> str:
    return re.sub(r"[^\w./-]|--", "-", text)


def _version() -> str:
    import tilewise

    return tilewise.__version__
