"""A question to the gate -> its verdict. The same question and hardware database give the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date

from tilewise.hwdb.errors import InvalidInput, NotAvailable, NotFound, TilewiseError, TooLarge
from tilewise.hwdb.gpu import Gpu
from tilewise.server.deadline import check_alive
from tilewise.server.gate import policy as policies
from tilewise.server.gate.allowances import silenced, stale
from tilewise.server.gate.change import Change
from tilewise.server.gate.compare import compare, left_on_table
from tilewise.server.gate.cure import Cures
from tilewise.server.gate.findings import NOT_COVERED, Asked, Inspector, uncovered
from tilewise.server.gate.metrics import LEFT_ON_TABLE
from tilewise.server.gate.patterns import matches
from tilewise.server.gate.policy import Budget, Policy, Severity
from tilewise.server.gate.results import Answer, Comparison, Finding, Question, Verdict

MOST_ITEMS = 10_000
MOST_COMPARISONS = 100_000
DATASHEET = "datasheet"  # in place of a calibration's id: none answers
GpuOf = Callable[[str], Gpu]


def check(question: Question, gpu_of: GpuOf) -> Answer:
    """Judge every configuration whose shape changed; all of them where the policy's workloads, GPUs or limits did.

    gpu_of: the GPU of a name, with the calibration that answers
    Raises InvalidInput (BAD_POLICY, BAD_DAY, FIELD_REQUIRED), NotFound (UNKNOWN_GPU, CALIBRATION_NOT_FOUND), NotAvailable (HWDB_TOO_OLD) and
    TooLarge. A configuration that cannot be judged is a comparison with an error, not an exception.
    """
    policy, today = policies.read(question.policy, question.policy_path), _day(question.day)
    _not_too_many(question.count)
    before = _before(question, policy)
    asked = _asked(policy, before or policy, gpu_of)
    _answered_by(asked, question.calibration, policy.since)
    check_comparisons(question.count, policy, asked)
    inspector = Inspector(policy, cures := Cures())
    same_policy = before is not None and (before.gpus, before.limits) == (policy.gpus, policy.limits)
    comparisons: list[Comparison] = []
    findings: list[Finding] = []
    unchanged, checked = [], []
    for change in question.changes:
        check_alive()
        if same_policy and change.same_shape and all(each.workload == each.before for each in asked):
            unchanged.append(change.path)
            continue
        checked.append(change.path)
        compared = list(_comparisons(change, policy, asked, cures))
        comparisons += silenced(policy, today, compared)
        findings += silenced(policy, today, inspector.inspect(change, asked, compared))
    findings += silenced(policy, today, uncovered(policy, [*unchanged, *checked], whole=question.whole))
    findings += stale(policy, today, findings, checked)
    findings.sort(key=lambda finding: (bool(finding.suppressed_by), -finding.severity))
    calibrations = {each.gpu.sku.name: each.gpu.answers_by for each in asked}
    return Answer(
        verdict=_verdict(comparisons, findings), comparisons=comparisons, findings=findings, unchanged=unchanged,
        calibrations=calibrations,
    )  # fmt: skip


def _not_too_many(count: int) -> None:
    if not count:
        raise InvalidInput("items is empty: a check needs configurations", reason="FIELD_REQUIRED", field="items")
    if count > MOST_ITEMS:
        message = f"{count} configurations in a check; at most {MOST_ITEMS}"
        raise TooLarge(message, reason="BATCH_TOO_LARGE", field="items")


def check_comparisons(changes: int, policy: Policy, asked: Sequence[Asked]) -> None:
    """Raises TooLarge where a check would make more comparisons than an answer can hold; each is some 500 bytes."""
    of_each = sum(len(budget.gpus) * len(budget.workloads) for budget in policy.budgets)
    for count, what in ((changes * of_each, "comparisons"), (changes * len(asked), "predictions")):
        if count > MOST_COMPARISONS:
            message = f"the check needs {count:,} {what}; at most {MOST_COMPARISONS:,}: judge fewer files, or by fewer budgets"
            raise TooLarge(
                message, reason="TOO_MANY_CANDIDATES", field="policy_toml", count=count, limit=MOST_COMPARISONS
            )


def _before(question: Question, policy: Policy) -> Policy | None:
    """The policy before the change; None where there was none that could be read."""
    if question.policy_before is None:
        return policy
    try:
        return policies.read(question.policy_before, policy.path)
    except TilewiseError:
        return None


def _asked(policy: Policy, before: Policy, gpu_of: GpuOf) -> list[Asked]:
    return [
        Asked(gpu, called, name, workload, before.workloads.get(name, workload))
        for called, gpu in _gpus(policy, gpu_of)
        for name, workload in policy.workloads.items()
    ]


def _gpus(policy: Policy, gpu_of: GpuOf) -> Iterator[tuple[str, Gpu]]:
    """Each GPU under the policy's name for it. Raises InvalidInput where two names mean one: a limit of the second would bind nothing."""
    known: dict[str, str] = {}
    for called in policy.gpus:
        gpu = gpu_of(called)
        if gpu.sku.name in known:
            message = f"{policy.path}: {known[gpu.sku.name]} and {called} are one GPU, {gpu.sku.name}: name it once"
            raise InvalidInput(message, reason="BAD_POLICY", field="policy_toml")
        known[gpu.sku.name] = called
        yield called, gpu


def _answered_by(asked: Sequence[Asked], calibration: str, since: str) -> None:
    """Raises NotFound where no GPU has the calibration asked for, and NotAvailable where the active ones are too old."""
    if not calibration:
        for each in asked:
            _new_enough(each.gpu, since)
    elif calibration != DATASHEET and all(each.gpu.answers_by != calibration for each in asked):
        known = sorted({each.gpu.answers_by for each in asked} - {""})
        message = (
            f"no GPU of the policy has a calibration {calibration[:60]!r}; active are {', '.join(known) or 'none'}"
        )
        raise NotFound(message, reason="CALIBRATION_NOT_FOUND", field="calibration")


def _new_enough(gpu: Gpu, since: str) -> None:
    known = gpu.answers_by
    if since and known[: len(since)] < since:
        have = f"its calibration is {known}" if known else "it has no calibration"
        message = f"the policy asks for a hardware database from {since} on, but of {gpu.sku.name} {have}"
        raise NotAvailable(message, reason="HWDB_TOO_OLD", field="policy_toml", gpu=gpu.sku.name)


def _comparisons(change: Change, policy: Policy, asked: Sequence[Asked], cures: Cures) -> Iterator[Comparison]:
    for budget in policy.budgets:
        if not matches(change.path, budget.config, policy.path):
            continue
        check_alive()
        for each in asked:
            if each.called in budget.gpus and each.name in budget.workloads:
                yield _comparison(change, budget, each, cures)


def _comparison(change: Change, budget: Budget, asked: Asked, cures: Cures) -> Comparison:
    before, after = asked.outcomes(change)
    if budget.metric == LEFT_ON_TABLE:
        edits = cures.edits(change.head.text, asked.gpu, asked.workload)
        return left_on_table(change.path, asked.name, budget, asked.gpu, after, edits)
    base = f"the base cannot be read: {before.message}" if isinstance(before, TilewiseError) else before
    return compare(change.path, asked.name, budget, asked.gpu, base or asked.no_base(change), after)


def _verdict(comparisons: Sequence[Comparison], findings: Sequence[Finding]) -> Verdict:
    """The worst of what the policy minds; what an allowance covers does not count."""
    broken = any(_minded(each.severity, each) and each.code != "TW104" for each in findings)
    uncovered = any(each.code in NOT_COVERED and not each.suppressed_by for each in findings)
    minded = [each.verdict for each in comparisons if _minded(each.budget.severity, each)]
    return max([Verdict.PASS, *minded, *[Verdict.FAIL] * broken, *[Verdict.NOT_JUDGED] * uncovered])


def _minded(severity: Severity, each: Comparison | Finding) -> bool:
    return severity == Severity.ERROR and not each.suppressed_by


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        message = f"date {text[:40]!r} must be a day as 2026-11-28: it decides which allowances have expired"
        raise InvalidInput(message, reason="BAD_DAY", field="date") from error
