"""What the forms share: counts, words, the order of things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from tilewise.hwdb.record import Record
from tilewise.server.gate import words
from tilewise.server.gate.findings import NOT_COVERED
from tilewise.server.gate.rules import rules
from tilewise.server.messages.words import word
from tilewise.server.step.intervals import Bounds
from tilewise.v1.check_pb2 import (
    SEVERITY_ERROR,
    SEVERITY_INFO,
    VERDICT_FAIL,
    VERDICT_PASS,
    CheckResponse,
    Comparison,
    Finding,
    Severity,
    Verdict,
)


class About(Record):
    """policy: its path; command: what gives the same answer again; strict: whether what is uncertain counts as broken."""

    policy: str
    command: str = "tilewise check"
    strict: bool = False


def verdict_word(each: Comparison, *, strict: bool = False) -> str:
    """ "pass", "FAIL", "uncertain", "not judged", "error"; "allowed" of a broken limit that an allowance covers, "warn" of one that is not minded."""
    if each.suppressed_by and each.verdict != VERDICT_PASS:
        return "allowed"
    name = word(Verdict.DESCRIPTOR, each.verdict).replace("_", " ")
    if each.verdict == VERDICT_FAIL or (strict and name == "uncertain"):
        return "FAIL" if each.severity == SEVERITY_ERROR else "warn"
    return name


def ratio(each: Comparison) -> Bounds | None:
    """Of head to base with its bounds; None where there is none."""
    return (each.ratio_low, each.ratio, each.ratio_high) if each.HasField("ratio") else None


def moved(each: Comparison) -> str:
    """The value before and after, in words."""
    return words.moved(each.metric, each.head, each.base if each.HasField("base") else None, ratio(each))


def told(each: Comparison) -> str:
    """A comparison that does not hold for sure, in one sentence."""
    return words.told(each.metric, each.workload, each.gpu, moved(each), each.limit)


def counts(answer: CheckResponse, *, strict: bool = False) -> str:
    """ "1 failed, 0 uncertain, 2 passed, 3 unchanged"."""
    found = Counter(verdict_word(each, strict=strict) for each in answer.comparisons)
    names = {"error": "not evaluated", "warn": "warned", "allowed": "allowed"}
    rare = [f"{found[name]} {shown}" for name, shown in names.items() if found[name]]
    shape = sum(
        each.severity == SEVERITY_ERROR and not each.suppressed_by and not of_budget(each) for each in answer.findings
    )
    rare += [f"{shape} rule{'s' if shape > 1 else ''} broken"] if shape else []
    not_judged = found["not judged"] + sum(
        each.code in NOT_COVERED and not each.suppressed_by for each in answer.findings
    )
    rare += [f"{not_judged} not judged"] if not_judged else []
    usual = [f"{found['FAIL']} failed", *rare, f"{found['uncertain']} uncertain", f"{found['pass']} passed"]
    return ", ".join([*usual, f"{len(answer.unchanged_paths)} unchanged"])


def of_budget(finding: Finding) -> bool:
    """Whether a finding says what a comparison says too."""
    return finding.code in ("TW101", "TW102", "TW103", "TW104", "TW106", "TW107")


def by_path(answer: CheckResponse) -> Iterator[tuple[str, list[Comparison]]]:
    for path, comparisons in groupby(answer.comparisons, key=lambda each: each.path):
        yield path, list(comparisons)


def shown(answer: CheckResponse) -> list[Finding]:
    """Findings that nothing silences, errors first."""
    return [finding for finding in answer.findings if not finding.suppressed_by]


def rule_name(code: str) -> str:
    return rules()[code].name if code in rules() else code


def level(finding: Finding) -> str:
    """ "error", "warning" or "info"."""
    return word(Severity.DESCRIPTOR, finding.severity or SEVERITY_INFO)


def sentence(finding: Finding) -> str:
    """The message with its fix."""
    return finding.message + (f"; fix: {finding.fix}" if finding.fix else "")


def database(answer: CheckResponse) -> str:
    """What answered: the database's hash and each GPU's calibration."""
    known = [f"{sku} {answer.calibrations[sku] or 'datasheet'}" for sku in sorted(answer.calibrations)]
    return f"database {answer.database_version}, {', '.join(known)}"
