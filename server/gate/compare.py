"""One metric before and after, against one budget.

A budget's limit holds where the best estimate keeps it. It is broken where the whole 90 % interval lies beyond it; between the
two nothing is claimed. max_regression is judged on the ratio of head to base, whose interval is that of server.ratio, and not
judged without a base; limit on the value itself, whose interval is the prediction's own; max_left_on_table on the gain of the
best free win. Bytes and counts are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from tilewise.hwdb.errors import NotAvailable, OutOfRange, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.edits import Edit
from tilewise.server.gate.metrics import METRICS, Metric
from tilewise.server.gate.outcome import Outcome
from tilewise.server.gate.policy import Budget
from tilewise.server.gate.results import Comparison, LayerChange, Verdict
from tilewise.server.step.intervals import Bounds
from tilewise.server.step.ratio import ratio_between

MOST_LAYERS = 8
LEAST = 1e-3  # of the step's time: layers that changed less are left out
ROUNDING = 1e-9  # two ways of adding up the same numbers


def compare(
    path: str, workload: str, budget: Budget, gpu: Gpu, base: Outcome | str, head: Outcome | TilewiseError
) -> Comparison:
    """The comparison, with its verdict; base: why there is none, in words."""
    found = Comparison(path=path, gpu=gpu.sku.name, workload=workload, budget=budget)
    if isinstance(head, TilewiseError):
        return replace(found, error=head)
    if budget.metric not in head.values:
        return replace(found, error=OutOfRange(head.refusal, reason="OUT_OF_RANGE"))
    if isinstance(base, Outcome) and budget.metric not in base.values:
        base = f"the base has no {budget.metric}: {base.refusal}"
    trust = min(head.trust, base.trust) if isinstance(base, Outcome) else head.trust
    found = replace(found, head=head.values[budget.metric], trust=trust)
    if isinstance(base, Outcome):
        found = _against(found, gpu, base, head)
    if METRICS[budget.metric].timed and trust < budget.min_trust:
        return replace(found, error=_too_little_trust(trust.name.lower(), budget))
    if isinstance(base, str) and budget.max_regression is not None:
        return replace(found, verdict=Verdict.NOT_JUDGED, not_judged=base)
    return replace(found, verdict=_judged(found, head))


def left_on_table(
    path: str, workload: str, budget: Budget, gpu: Gpu, head: Outcome | TilewiseError, edits: Sequence[Edit]
) -> Comparison:
    """What the free win would save that breaks the limit most, or else saves most: a share of the step's time."""
    timed = compare(path, workload, replace(budget, metric="time_s", limit=math.inf), gpu, "", head)
    found = replace(timed, budget=budget)
    if found.error is not None:
        return found
    metric, limit = METRICS[budget.metric], budget.limit or 0.0
    gains = [(1 - edit.high, 1 - edit.time_ratio, 1 - edit.low) for edit in edits]
    judged = [(_verdict(metric, gain, limit, 0.0), gain[1]) for gain in gains]
    verdict, gain = max(judged, default=(Verdict.PASS, 0.0))
    return replace(found, head=max(gain, 0.0), verdict=verdict)


def _against(found: Comparison, gpu: Gpu, base: Outcome, head: Outcome) -> Comparison:
    """With what was before."""
    metric, before, after = METRICS[found.budget.metric], *(side.values[found.budget.metric] for side in (base, head))
    layers = changes(base, head) if metric.timed else ()
    return replace(found, base=before, layers=layers, ratio=_ratio(metric, before, after, gpu, base, head))


def _judged(found: Comparison, head: Outcome) -> Verdict:
    budget, metric = found.budget, METRICS[found.budget.metric]
    if budget.limit is not None:
        return _verdict(metric, _bounds(metric, head.values[budget.metric], head), budget.limit, 0.0)
    if found.ratio is not None:
        return _verdict(metric, found.ratio, 1.0, budget.max_regression or 0.0)
    assert found.head is not None and found.base is not None
    return Verdict.FAIL if (found.head > found.base) == metric.less else Verdict.PASS  # from 0 or to 0: no share


def _too_little_trust(trust: str, budget: Budget) -> NotAvailable:
    message = (
        f"trust {trust} is below the budget's min_trust {budget.min_trust.name.lower()}: `tilewise calibrate run` on that GPU "
        "raises it, or lower min_trust"
    )
    return NotAvailable(message, reason="TRUST_TOO_LOW", field="min_trust")


def _verdict(metric: Metric, bounds: Bounds, limit: float, slack: float) -> Verdict:
    """Whether a value with its bounds keeps a limit that may be missed by a share of `slack`."""
    low, value, _ = bounds if metric.less else [1 / bound if bound else math.inf for bound in reversed(bounds)]
    allowed = (limit if metric.less else 1 / limit) * (1 + slack) * (1 + ROUNDING)
    if value <= allowed:
        return Verdict.PASS
    return Verdict.FAIL if low > allowed else Verdict.UNCERTAIN


def _ratio(metric: Metric, before: float, after: float, gpu: Gpu, base: Outcome, head: Outcome) -> Bounds | None:
    """(low, ratio, high) of a metric, after over before; None where there is no ratio."""
    if not before or not after:
        return (1.0, 1.0, 1.0) if before == after else None
    ratio = after / before
    if not metric.timed:
        return ratio, ratio, ratio
    assert base.timed is not None and head.timed is not None
    low, time, high = ratio_between(gpu, base.timed, head.timed)
    if metric.less:
        return ratio * low / time, ratio, ratio * high / time
    return ratio * time / high, ratio, ratio * time / low


def _bounds(metric: Metric, value: float, head: Outcome) -> Bounds:
    """(low, value, high) of a metric as its own prediction bounds it."""
    if not metric.timed or head.timed is None:
        return value, value, value
    time = head.timed.time
    if metric.less:
        return value * time.low_s / time.time_s, value, value * time.high_s / time.time_s
    return value * time.time_s / time.high_s, value, value * time.time_s / time.low_s


def changes(base: Outcome, head: Outcome) -> list[LayerChange]:
    """The kinds of layers that changed most, the largest change first."""
    found = []
    whole = head.values["time_s"]
    for name in dict.fromkeys((*head.layers, *base.layers)):
        before, was = base.layers.get(name, (0.0, None))
        after, wall = head.layers.get(name, (0.0, was))
        if wall is not None and abs(after - before) > LEAST * whole:
            found.append(LayerChange(name, before, after, wall))
    return sorted(found, key=lambda change: -abs(change.head_s - change.base_s))[:MOST_LAYERS]
