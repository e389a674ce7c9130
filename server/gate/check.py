"""A request of the gate -> its verdict. The same request and hardware database give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date

from tilewise.hwdb.errors import InvalidInput, NotAvailable, NotFound, TilewiseError, TooLarge
from tilewise.hwdb.gpu import Gpu
from tilewise.server.deadline import check_alive
from tilewise.server.gate import policy as policies
from tilewise.server.gate.allowances import silence, stale
from tilewise.server.gate.change import Change
from tilewise.server.gate.compare import compare
from tilewise.server.gate.cure import Cures
from tilewise.server.gate.findings import Asked, Inspector
from tilewise.server.gate.patterns import matches
from tilewise.server.gate.policy import Budget, Policy
from tilewise.v1.check_pb2 import (
    SEVERITY_ERROR,
    VERDICT_FAIL,
    VERDICT_PASS,
    CheckRequest,
    CheckResponse,
    Comparison,
    Finding,
    Verdict,
)

MOST_ITEMS = 10_000
DATASHEET = "datasheet"  # in place of a calibration's id: none answers
GpuOf = Callable[[str], Gpu]


def check(request: CheckRequest, gpu_of: GpuOf, version: str) -> CheckResponse:
    """Judge every configuration whose shape, or whose workload, changed.

    gpu_of: the GPU of a name, with the calibration that answers; version: of the database
    Raises InvalidInput (BAD_POLICY, BAD_DAY, FIELD_REQUIRED), NotFound (UNKNOWN_GPU, CALIBRATION_NOT_FOUND), NotAvailable (HWDB_TOO_OLD) and
    TooLarge. A configuration that cannot be judged is a comparison with an error, not an exception.
    """
    policy, today = policies.read(request.policy_toml, request.policy_path or "tilewise.toml"), _day(request.date)
    if not request.items:
        raise InvalidInput("items is empty: a check needs configurations", reason="FIELD_REQUIRED", field="items")
    if len(request.items) > MOST_ITEMS:
        message = f"{len(request.items)} configurations in a check; at most {MOST_ITEMS}"
        raise TooLarge(message, reason="BATCH_TOO_LARGE", field="items")
    asked = _asked(policy, _before(request, policy), gpu_of)
    _answered_by(asked, request.calibration, policy.since)
    inspector = Inspector(policy, Cures())
    calibrations = {each.gpu.sku.name: each.gpu.calibration.id if each.gpu.calibration else "" for each in asked}
    answer = CheckResponse(database_version=version, calibrations=calibrations)
    checked = []
    for item in sorted(request.items, key=lambda item: item.path):
        check_alive()
        change = Change.of(item)
        if change.same_shape and all(each.workload == each.before for each in asked):
            answer.unchanged_paths.append(item.path)
            continue
        checked.append(item.path)
        comparisons = list(_comparisons(change, policy, asked))
        answer.comparisons.extend(comparisons)
        answer.findings.extend(inspector.inspect(change, asked, comparisons))
    silence(policy, today, answer.findings, answer.comparisons)
    answer.findings.extend(stale(policy, today, answer.findings, checked))
    answer.findings.sort(key=lambda finding: (bool(finding.suppressed_by), -finding.severity))
    answer.verdict = _verdict(answer.comparisons, answer.findings)
    return answer


def _before(request: CheckRequest, policy: Policy) -> Policy:
    """The policy before the change; one that could not be read then is as it is now."""
    if not request.HasField("base_policy_toml"):
        return policy
    try:
        return policies.read(request.base_policy_toml, policy.path)
    except TilewiseError:
        return policy


def _asked(policy: Policy, before: Policy, gpu_of: GpuOf) -> list[Asked]:
    return [
        Asked(gpu, name, workload, before.workloads.get(name, workload))
        for gpu in map(gpu_of, policy.gpus)
        for name, workload in policy.workloads.items()
    ]


def _answered_by(asked: Sequence[Asked], calibration: str, since: str) -> None:
    """Raises NotFound where no GPU has the calibration asked for, and NotAvailable where the active ones are too old."""
    if not calibration:
        for each in asked:
            _new_enough(each.gpu, since)
    elif calibration != DATASHEET and all(
        each.gpu.calibration is None or each.gpu.calibration.id != calibration for each in asked
    ):
        known = sorted({each.gpu.calibration.id for each in asked if each.gpu.calibration is not None})
        message = (
            f"no GPU of the policy has a calibration {calibration[:60]!r}; active are {', '.join(known) or 'none'}"
        )
        raise NotFound(message, reason="CALIBRATION_NOT_FOUND", field="calibration")


def _new_enough(gpu: Gpu, since: str) -> None:
    known = gpu.calibration.id if gpu.calibration is not None else ""
    if since and known[: len(since)] < since:
        have = f"its calibration is {known}" if known else "it has no calibration"
        message = f"the policy asks for a hardware database from {since} on, but of {gpu.sku.name} {have}"
        raise NotAvailable(message, reason="HWDB_TOO_OLD", field="policy_toml", gpu=gpu.sku.name)


def _comparisons(change: Change, policy: Policy, asked: Sequence[Asked]) -> Iterator[Comparison]:
    names = dict(zip(dict.fromkeys(each.gpu.sku.name for each in asked), policy.gpus, strict=False))
    for budget in policy.budgets:
        if not matches(change.path, budget.config, policy.path):
            continue
        for each in asked:
            if names[each.gpu.sku.name] in budget.gpus and each.name in budget.workloads:
                yield _comparison(change, budget, each)


def _comparison(change: Change, budget: Budget, asked: Asked) -> Comparison:
    before, after = asked.outcomes(change)
    base = None if isinstance(before, TilewiseError) else before
    return compare(change.path, asked.name, budget, asked.gpu, base, after)


def _verdict(comparisons: Sequence[Comparison], findings: Sequence[Finding]) -> Verdict:
    """The worst of what the policy minds; what an allowance covers does not count."""
    worst: Verdict = VERDICT_PASS
    for each in comparisons:
        if each.severity == SEVERITY_ERROR and not each.suppressed_by:
            worst = max(worst, each.verdict)
    if any(each.severity == SEVERITY_ERROR and not each.suppressed_by and each.code != "TW104" for each in findings):
        worst = max(worst, VERDICT_FAIL)
    return worst


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        message = f"date {text[:40]!r} must be a day as 2026-11-28: it decides which allowances have expired"
        raise InvalidInput(message, reason="BAD_DAY", field="date") from error
