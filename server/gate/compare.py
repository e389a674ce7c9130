"""One metric before and after, against one budget.

A budget's limit holds where the best estimate keeps it. It is broken where the whole 90 % interval lies beyond it; between the
two nothing is claimed. max_regression is judged on the ratio of head to base, whose interval is that of server.ratio; limit on
the value itself, whose interval is the prediction's own. Bytes and counts are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tilewise.hwdb.errors import NotAvailable, OutOfRange, TilewiseError
from tilewise.hwdb.gpu import Gpu
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
    path: str, workload: str, budget: Budget, gpu: Gpu, base: Outcome | None, head: Outcome | TilewiseError
) -> Comparison:
    """The comparison, with its verdict; base None: there is nothing before."""
    found = Comparison(path=path, gpu=gpu.sku.name, workload=workload, budget=budget)
    if isinstance(head, TilewiseError):
        return replace(found, error=head)
    if budget.metric not in head.values:
        return replace(found, error=OutOfRange(head.refusal, reason="OUT_OF_RANGE"))
    if base is not None and budget.metric not in base.values:
        base = None
    trust = head.trust if base is None else min(head.trust, base.trust)
    found = replace(found, head=head.values[budget.metric], trust=trust)
    if base is not None:
        found = _against(found, gpu, base, head)
    if METRICS[budget.metric].timed and trust < budget.min_trust:
        return replace(found, error=_too_little_trust(trust.name.lower(), budget))
    return replace(found, verdict=max(_verdicts(found, head)))


def _against(found: Comparison, gpu: Gpu, base: Outcome, head: Outcome) -> Comparison:
    """With what was before."""
    metric, before, after = METRICS[found.budget.metric], *(side.values[found.budget.metric] for side in (base, head))
    layers = changes(base, head) if metric.timed else ()
    return replace(found, base=before, layers=layers, ratio=_ratio(metric, before, after, gpu, base, head))


def _verdicts(found: Comparison, head: Outcome) -> Iterator[Verdict]:
    """Of every limit that can be judged."""
    budget, metric = found.budget, METRICS[found.budget.metric]
    yield Verdict.PASS
    if found.ratio is not None and budget.max_regression is not None:
        yield _verdict(metric, found.ratio, 1.0, budget.max_regression)
    if budget.limit is not None:
        yield _verdict(metric, _bounds(metric, head.values[budget.metric], head), budget.limit, 0.0)


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
