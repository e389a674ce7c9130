"""Findings that the policy lets through, and allowances that no longer should."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from tilewise.server.gate.findings import rated
from tilewise.server.gate.patterns import matches
from tilewise.server.gate.policy import Allowance, Policy
from tilewise.v1.check_pb2 import VERDICT_UNCERTAIN, Comparison, Finding

BUDGETS = {"max_regression": "TW101", "limit": "TW102"}  # the code under which a broken limit is allowed
UNCERTAIN = "TW103"


def silence(policy: Policy, today: date, findings: Sequence[Finding], comparisons: Sequence[Comparison]) -> None:
    """Write into what an allowance covers its reason."""
    for allowance in policy.allowances:
        if expired(allowance, today):
            continue
        for finding in findings:
            if _silences(allowance.code, finding.code) and _covers(allowance, finding.path, policy):
                finding.suppressed_by = allowance.reason
        for comparison in comparisons:
            unsure = comparison.verdict == VERDICT_UNCERTAIN
            code = UNCERTAIN if unsure else BUDGETS[comparison.limit.partition(" ")[0]]
            if _silences(allowance.code, code) and _covers(allowance, comparison.path, policy):
                comparison.suppressed_by = allowance.reason


def stale(policy: Policy, today: date, findings: Sequence[Finding], checked: Sequence[str]) -> list[Finding]:
    """Allowances that have expired, and those that silence nothing in any configuration that was checked."""
    found = []
    for allowance in policy.allowances:
        covered = [path for path in checked if _covers(allowance, path, policy)]
        used = any(_silences(allowance.code, f.code) and _covers(allowance, f.path, policy) for f in findings)
        if expired(allowance, today):
            message = f"the allowance of {allowance.code} for {allowance.config} ended on {allowance.until}"
            found.append(_about(policy, allowance, "TW202", message))
        elif covered and not used:
            message = f"the allowance of {allowance.code} for {allowance.config} silences nothing: {allowance.reason}"
            found.append(_about(policy, allowance, "TW201", message))
    return [finding for finding in found if finding.severity]


def _silences(allowed: str, code: str) -> bool:
    """Whether an allowance of one code covers another: who allows a broken budget allows one that may be broken."""
    return allowed == code or (code == UNCERTAIN and allowed in BUDGETS.values())


def expired(allowance: Allowance, today: date) -> bool:
    return allowance.until is not None and allowance.until < today


def _covers(allowance: Allowance, path: str, policy: Policy) -> bool:
    return matches(path, allowance.config, policy.path)


def _about(policy: Policy, allowance: Allowance, code: str, message: str) -> Finding:
    return Finding(
        code=code, path=policy.path, line=allowance.line, column=1, message=message, severity=rated(code, policy)
    )
