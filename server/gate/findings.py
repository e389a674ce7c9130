"""What the rules say of one changed configuration: of its shape, its steps, and the budgets it broke."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.server.advise.subject import FIELDS
from tilewise.server.gate.change import Change
from tilewise.server.gate.cure import Cures
from tilewise.server.gate.metrics import LEFT_ON_TABLE
from tilewise.server.gate.outcome import Outcome
from tilewise.server.gate.patterns import matches
from tilewise.server.gate.places import Place
from tilewise.server.gate.policy import Policy, Severity
from tilewise.server.gate.results import Comparison, Finding, Verdict
from tilewise.server.gate.rules import rules
from tilewise.server.gate.words import moved, told
from tilewise.server.step.memory import room_bytes
from tilewise.server.workload import Workload

NOT_COVERED = ("TW203", "TW204")  # findings of what no limit judged


class Asked(Record):
    """A GPU, called so by the policy, and a workload under which a change is judged; before: the workload as it was for the base."""

    gpu: Gpu
    called: str
    name: str
    workload: Workload
    before: Workload

    def outcomes(self, change: Change) -> tuple[Outcome | TilewiseError | None, Outcome | TilewiseError]:
        """(before, after); before None where the file is new."""
        after = change.head.outcome(self.gpu, self.workload)
        if change.base is not None:
            return change.base.outcome(self.gpu, self.before), after
        return change.predictions.get((self.gpu.sku.name, self.before)), after

    def no_base(self, change: Change) -> str:
        """Why nothing is known of what was before."""
        return f"the base has no prediction of {self.name} on {self.gpu.sku.name}" if change.predictions else "no base"


class Inspector(Record):
    """Finds; of a rule that the policy turned off nothing."""

    policy: Policy
    cures: Cures

    def inspect(self, change: Change, asked: Sequence[Asked], comparisons: Sequence[Comparison]) -> list[Finding]:
        """Everything about one changed configuration."""
        by_name = {(each.gpu.sku.name, each.name): each for each in asked}
        limited = [by_name[key] for key in dict.fromkeys((each.gpu, each.workload) for each in comparisons)]
        found = [
            *self._budgets(change, comparisons, by_name),
            *self._base(change, asked),
            *self._shape(change, asked),
            *self._fit(change, limited),
            *self._waste(change, limited),
        ]
        return [finding for finding in found if finding.severity]

    def _budgets(
        self, change: Change, comparisons: Sequence[Comparison], asked: Mapping[tuple[str, str], Asked]
    ) -> Iterator[Finding]:
        """One finding for every budget that is broken, cannot be told, or was not evaluated."""
        yield from self._not_evaluated(change, comparisons)
        yield from self._not_judged(change, comparisons)
        for each in comparisons:
            if each.verdict not in (Verdict.UNCERTAIN, Verdict.FAIL):
                continue
            where = asked[each.gpu, each.workload]
            if each.budget.metric == LEFT_ON_TABLE:
                size, fix = self.cures.of(change.head.text, where.gpu, where.workload, ())
            else:
                size, fix = self._cure(change, where, tuple(change.changed_sizes))
            severity = None if each.verdict == Verdict.UNCERTAIN else each.budget.severity
            yield self._finding(each.code, change, _told(each), size, fix, severity)

    def _not_evaluated(self, change: Change, comparisons: Sequence[Comparison]) -> Iterator[Finding]:
        """One finding for every reason, at the severity of the strictest budget that it leaves without a number."""
        worst: dict[tuple[str, str, str], Severity] = {}
        for each in comparisons:
            if each.error is not None:
                where = ("", "") if isinstance(each.error, InvalidInput) else (each.workload, each.gpu)
                key = (each.error.message, *where)
                worst[key] = max(each.budget.severity, worst.get(key, Severity.OFF))
        for (message, workload, gpu), severity in worst.items():
            asked = f"{workload} on {gpu}: " if gpu else ""
            yield self._finding("TW104", change, asked + message, severity=severity)

    def _not_judged(self, change: Change, comparisons: Sequence[Comparison]) -> Iterator[Finding]:
        """One finding for every reason."""
        reasons: dict[str, list[str]] = {}
        for each in comparisons:
            if each.verdict == Verdict.NOT_JUDGED:
                reasons.setdefault(each.not_judged, []).append(f"{each.budget.metric} of {each.workload} on {each.gpu}")
        for why, what in reasons.items():
            yield self._finding("TW107", change, f"not judged against max_regression, {why}: {', '.join(what)}")

    def _base(self, change: Change, asked: Sequence[Asked]) -> Iterator[Finding]:
        befores = [each.outcomes(change)[0] for each in asked]
        reasons = [why for before in befores if (why := _missing(before))]
        if reasons:
            yield self._finding("TW105", change, f"before the change there is nothing to compare with: {reasons[0]}")

    def _shape(self, change: Change, asked: Sequence[Asked]) -> Iterator[Finding]:
        """Sizes that fit no tile, under the largest tensor parallelism in use; told only where a change does not touch them."""
        widest = max(asked, key=lambda each: each.workload.tensor_parallel)
        sizes = change.sizes[1]
        for rule in rules().values():
            parts = widest.workload.tensor_parallel if rule.split else 1
            size = sizes.get(rule.field, 0)
            if not rule.multiple or not size % (rule.multiple * parts):
                continue
            on_each = f" on each of {parts} GPUs" if parts > 1 else ""
            message = f"{rule.field} {size} is no multiple of {rule.multiple}{on_each}"
            _, fix = self._cure(change, widest, (rule.field,))
            old_or_free = not fix or not change.touches(rule.field)
            severity = Severity.INFO if old_or_free and rule.code not in self.policy.severities else None
            yield self._finding(rule.code, change, message, rule.field, fix, severity)

    def _fit(self, change: Change, asked: Sequence[Asked]) -> Iterator[Finding]:
        """Steps that do not fit into the GPU's memory: no limit of their time means anything."""
        for each in asked:
            before, after = each.outcomes(change)
            if isinstance(after, Outcome) and not after.fits:
                fitted = isinstance(before, Outcome) and before.fits
                total = after.values["memory_bytes"] / 2**30
                room = room_bytes(each.gpu.sku.memory_bytes, each.workload) / 2**30
                how = f"{'no longer fits' if fitted else 'does not fit'}: {total:.1f} GiB at the peak, the GPU leaves {room:.1f}"
                yield self._finding("TW020" if fitted else "TW022", change, f"{each.name} on {each.gpu.sku.name} {how}")

    def _waste(self, change: Change, asked: Sequence[Asked]) -> Iterator[Finding]:
        """Steps of which tiles waste more than before."""
        for each in asked:
            before, after = each.outcomes(change)
            if not isinstance(before, Outcome) or not isinstance(after, Outcome):
                continue
            where = f"{each.name} on {each.gpu.sku.name}"
            wasted, was = (side.values.get("tile_waste", 0.0) for side in (after, before))
            grown = wasted - (was if before.timed else wasted)
            if grown > rules()["TW021"].growth:
                message = f"{where} loses {wasted:.1%} of the step to tiles, {grown:.1%} more than before"
                yield self._finding("TW021", change, message)

    def _cure(self, change: Change, asked: Asked, fields: tuple[str, ...]) -> tuple[str, str]:
        chosen = tuple(field for field in fields if field in FIELDS)
        return self.cures.of(change.head.text, asked.gpu, asked.workload, chosen) if chosen else ("", "")

    def _finding(
        self,
        code: str,
        change: Change,
        message: str,
        field: str = "",
        fix: str = "",
        severity: Severity | None = None,
    ) -> Finding:
        """A finding at the key that states `field`, or else at the first key that changed; severity None: the rule's own."""
        key, place = change.place(field, rules()[code].follows)
        severity = rated(code, self.policy) if severity is None else severity
        return Finding(code=code, severity=severity, path=change.path, message=message, place=place, field=key, fix=fix)


def uncovered(policy: Policy, paths: Sequence[str], *, whole: bool) -> list[Finding]:
    """Configurations that no budget limits; where these are all there are (whole), budgets that limit none of them."""
    found = []
    lines = {budget.line: budget.config for budget in policy.budgets}
    for path in paths:
        if not any(matches(path, pattern, policy.path) for pattern in lines.values()):
            message = f"no budget of {policy.path} has a pattern for it: it is not judged"
            found.append(Finding(code="TW204", severity=rated("TW204", policy), path=path, message=message))
    for line, pattern in lines.items() if whole else ():
        if not any(matches(path, pattern, policy.path) for path in paths):
            message = f"no configuration matches {pattern}: the budget judges nothing"
            place, severity = Place(line, 1), rated("TW203", policy)
            found.append(Finding(code="TW203", severity=severity, path=policy.path, place=place, message=message))
    return [finding for finding in found if finding.severity]


def _told(each: Comparison) -> str:
    assert each.head is not None
    how = moved(each.budget.metric, each.head, each.base, each.ratio)
    return told(each.budget.metric, each.workload, each.gpu, how, each.budget.text)


def _missing(before: Outcome | TilewiseError | None) -> str:
    """Why the base has no time; "" where it has one, or where there is no base."""
    if isinstance(before, TilewiseError):
        return before.message
    return before.refusal if before is not None else ""


def rated(code: str, policy: Policy) -> Severity:
    """The severity of a rule under a policy."""
    return Severity[policy.severities.get(code, rules()[code].severity).upper()]
