"""A CheckRequest as the gate's question, and its answer as a CheckResponse."""

from __future__ import annotations

from math import inf, isclose

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.times import Trust, Wall
from tilewise.server.gate.change import Change
from tilewise.server.gate.check import GpuOf, check
from tilewise.server.gate.outcome import Outcome, Side
from tilewise.server.gate.policy import Severity
from tilewise.server.gate.results import Answer, Comparison, Finding, LayerChange, Question, Verdict
from tilewise.server.messages.enums import TRUSTS, WALLS, numbers
from tilewise.server.messages.question import workload_of
from tilewise.server.messages.rows import from_columns
from tilewise.server.messages.status import to_status
from tilewise.server.step.ratio import Timed
from tilewise.server.step.report import Interval
from tilewise.v1 import check_pb2

ROUNDING = 1e-6  # of sums in another order
VERDICTS = numbers(check_pb2.Verdict, Verdict)
SEVERITIES = numbers(check_pb2.Severity, filter(None, Severity))
_TRUST = {number: Trust(code) for code, number in TRUSTS.items()}
_WALL = {number: Wall(code) for code, number in WALLS.items()}


def check_response(request: check_pb2.CheckRequest, gpu_of: GpuOf, version: str) -> check_pb2.CheckResponse:
    """The gate's answer. gpu_of: as server.gate.check says, which says what is raised too; version: of the database."""
    return response(check(question(request), gpu_of), version)


def question(request: check_pb2.CheckRequest) -> Question:
    """Raises InvalidInput (OLD_BASELINE) when a change is taken from it whose saved predictions say what no prediction says."""
    return Question(
        policy=request.policy_toml, policy_path=request.policy_path or "tilewise.toml",
        policy_before=request.base_policy_toml if request.HasField("base_policy_toml") else None,
        changes=map(change, sorted(request.items, key=lambda item: item.path)), count=len(request.items),
        day=request.date, calibration=request.calibration, whole=request.all_items,
    )  # fmt: skip


def change(item: check_pb2.CheckItem) -> Change:
    base = Side(item.base, item.path) if item.HasField("base") else None
    predictions = {(each.gpu, workload_of(each.workload)): saved(each) for each in item.base_predictions}
    return Change(item.path, Side(item.head, item.path), base, predictions)


def saved(message: check_pb2.SavedPrediction) -> Outcome:
    """What an earlier prediction said. Raises InvalidInput (OLD_BASELINE)."""
    step, time = message.step, message.step.prediction
    _check(message)
    values = {
        "time_s": time.time_s,
        "tokens_per_s": step.tokens_per_s,
        "mfu": step.mfu,
        "memory_bytes": float(message.memory_bytes),
        "parameter_count": float(message.parameter_count),
        "tile_waste": (step.padding_s + step.wave_s + step.alignment_s) / time.time_s,
    }
    layers = {
        layer.name: (sum(wall.time_s for wall in layer.walls), _WALL[layer.prediction.wall]) for layer in message.layers
    }
    table, times = from_columns(message.rows)
    if not isclose(float(table.count @ times.time_s), step.busy_s, rel_tol=ROUNDING):
        text = "the operators of a saved prediction do not add up to its step"
        raise InvalidInput(text, reason="OLD_BASELINE", field="items.base_predictions.rows")
    interval = Interval(time.time_s, time.time_low_s, time.time_high_s)
    workload = workload_of(message.workload)
    timed = Timed(calibration=time.calibration, workload=workload, time=interval, table=table, times=times)
    return Outcome(values=values, timed=timed, trust=_TRUST[time.trust], layers=layers, fits=not message.does_not_fit)


def _check(message: check_pb2.SavedPrediction) -> None:
    """Raises InvalidInput (OLD_BASELINE) for what no prediction says."""
    time = message.step.prediction
    if not 0 < time.time_low_s <= time.time_s <= time.time_high_s < inf:
        text = (
            f"a saved prediction says {time.time_s} s within {time.time_low_s} to {time.time_high_s} s: no time is so"
        )
        raise InvalidInput(text, reason="OLD_BASELINE", field="items.base_predictions")
    if time.trust not in _TRUST or any(layer.prediction.wall not in _WALL for layer in message.layers):
        text = "a saved prediction lacks its trust, or a layer its wall"
        raise InvalidInput(text, reason="OLD_BASELINE", field="items.base_predictions")


def response(answer: Answer, version: str) -> check_pb2.CheckResponse:
    return check_pb2.CheckResponse(
        verdict=VERDICTS[answer.verdict], comparisons=map(comparison, answer.comparisons),
        findings=map(finding, answer.findings), unchanged_paths=answer.unchanged, database_version=version,
        calibrations=answer.calibrations,
    )  # fmt: skip


def comparison(found: Comparison) -> check_pb2.Comparison:
    budget, (low, ratio, high) = found.budget, found.ratio or (None, None, None)
    return check_pb2.Comparison(
        path=found.path, gpu=found.gpu, workload=found.workload, metric=budget.metric, head=found.head, base=found.base,
        ratio=ratio, ratio_low=low, ratio_high=high, limit=budget.text, verdict=VERDICTS[found.verdict],
        severity=SEVERITIES[budget.severity], trust=None if found.trust is None else TRUSTS[found.trust],
        layers=map(layer_change, found.layers), message=budget.message, policy_line=budget.line,
        error=None if found.error is None else to_status(found.error), suppressed_by=found.suppressed_by, not_judged=found.not_judged,
    )  # fmt: skip


def layer_change(found: LayerChange) -> check_pb2.LayerChange:
    return check_pb2.LayerChange(name=found.name, base_s=found.base_s, head_s=found.head_s, wall=WALLS[found.wall])


def finding(found: Finding) -> check_pb2.Finding:
    line, column = found.place or (None, None)
    return check_pb2.Finding(
        code=found.code, severity=SEVERITIES[found.severity], path=found.path, line=line, column=column,
        field=found.field, message=found.message, fix=found.fix, suppressed_by=found.suppressed_by,
    )  # fmt: skip
