"""What a step's diagnosis says, as a message."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.advice import Recommendation
from tilewise.server.advise.words import one
from tilewise.server.messages.report import prediction
from tilewise.server.step.regime import signs
from tilewise.server.step.report import Report
from tilewise.v1 import report_pb2


def diagnosis(gpu: Gpu, found: Report, advised: Sequence[Recommendation]) -> report_pb2.Diagnosis:
    """Signs of the step's regime, and advice on it."""
    remedies = [remedy(each, found.calibration) for each in advised]
    return report_pb2.Diagnosis(regime=found.step.regime, signs=signs(gpu, found), remedies=remedies)


def remedy(found: Recommendation, calibration: str) -> report_pb2.Remedy:
    """Advice on one workload; a gain is in tokens, so the reciprocal of a ratio of times."""
    (effect,) = found.effects
    after = effect.after.step
    return report_pb2.Remedy(
        kind=_remedy_kind(found),
        change=one(found),
        prediction=prediction(after.time, after.trust, after.wall, after.distance, calibration),
        tokens_per_s=after.tokens_per_s,
        gain=1 / effect.time_ratio - 1,
        gain_low=1 / effect.high - 1,
        gain_high=1 / effect.low - 1,
        memory_bytes=int(effect.after.memory.total_bytes),
    )


def _remedy_kind(found: Recommendation) -> str:
    field, _, value = found.changes[0]
    kinds = {"batch": "batch", "precision": "precision", "recompute": "recompute", "tensor_parallel": "parallelism",
             "mode": {"compiled": "compile"}.get(value, value)}  # fmt: skip
    return kinds.get(field, found.kind)
