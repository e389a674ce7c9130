"""Findings that the policy lets through, and allowances that no longer should."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TypeVar

from msgspec.structs import replace

from tilewise.server.deadline import check_alive
from tilewise.server.gate.findings import rated
from tilewise.server.gate.patterns import matches
from tilewise.server.gate.places import Place
from tilewise.server.gate.policy import Allowance, Policy
from tilewise.server.gate.results import Comparison, Finding

BUDGETS = ("TW101", "TW102")  # the codes under which a broken limit is allowed
UNCERTAIN = "TW103"
Found = TypeVar("Found", Comparison, Finding)


def silenced(policy: Policy, today: date, found: Sequence[Found]) -> list[Found]:
    """The same, with its reason what an allowance covers; where several do, the last one's."""
    known = [allowance for allowance in policy.allowances if not expired(allowance, today)]
    return [_silenced(policy, known, each) for each in found]


def _silenced(policy: Policy, known: Sequence[Allowance], found: Found) -> Found:
    check_alive()
    reasons = [one.reason for one in known if _silences(one, found, policy)]
    return replace(found, suppressed_by=reasons[-1]) if reasons else found


def stale(policy: Policy, today: date, findings: Sequence[Finding], checked: Sequence[str]) -> list[Finding]:
    """Allowances that have expired, and those that silence nothing in any configuration that was checked."""
    found = []
    for allowance in policy.allowances:
        check_alive()
        covered = any(_covers(allowance, path, policy) for path in checked)
        if expired(allowance, today):
            message = f"the allowance of {allowance.code} for {allowance.config} ended on {allowance.until}"
            found.append(_about(policy, allowance, "TW202", message))
        elif covered and not any(_silences(allowance, finding, policy) for finding in findings):
            message = f"the allowance of {allowance.code} for {allowance.config} silences nothing: {allowance.reason}"
            found.append(_about(policy, allowance, "TW201", message))
    return [finding for finding in found if finding.severity]


def _silences(allowance: Allowance, found: Comparison | Finding, policy: Policy) -> bool:
    """Whether an allowance covers something: who allows a broken budget allows one that may be broken."""
    meant = allowance.code == found.code or (found.code == UNCERTAIN and allowance.code in BUDGETS)
    return meant and _covers(allowance, found.path, policy)


def expired(allowance: Allowance, today: date) -> bool:
    return allowance.until is not None and allowance.until < today


def _covers(allowance: Allowance, path: str, policy: Policy) -> bool:
    return matches(path, allowance.config, policy.path)


def _about(policy: Policy, allowance: Allowance, code: str, message: str) -> Finding:
    place = Place(allowance.line, 1)
    return Finding(code=code, path=policy.path, place=place, message=message, severity=rated(code, policy))
