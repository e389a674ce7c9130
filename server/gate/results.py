"""What a check asks and answers. server/messages/gate.py turns it into the contract's messages and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import Trust, Wall
from tilewise.server.gate.change import Change
from tilewise.server.gate.metrics import LEFT_ON_TABLE
from tilewise.server.gate.places import Place
from tilewise.server.gate.policy import Budget, Severity
from tilewise.server.step.intervals import Bounds


class Verdict(IntEnum):
    """Whether a limit holds, the worst last."""

    PASS = 1
    NOT_JUDGED = 2  # there is nothing to judge by
    UNCERTAIN = 3  # the difference lies inside the error band
    FAIL = 4
    ERROR = 5  # it could not be evaluated


class Question(Record, kw_only=True):
    """changes: `count` of them by path, each made when it is judged; calibration: answers in place of the active one

    policy_before: text of the policy before the change, None where it is the same; day: as 2026-11-28
    whole: whether these are all configurations that the policy's patterns match
    """

    policy: str
    policy_path: str
    policy_before: str | None
    changes: Iterable[Change]
    count: int
    day: str
    calibration: str
    whole: bool = False


class LayerChange(Record):
    """Seconds of one kind of layer in one step, 0 where it is not; wall: what bounds it after the change."""

    name: str
    base_s: float
    head_s: float
    wall: Wall


class Comparison(Record, kw_only=True):
    """One metric of a configuration against one budget. base: None where there is nothing before; ratio: of head to base

    error: why there is no value; not_judged: why there is no verdict where there is one; layers: the largest change first
    """

    path: str
    gpu: str
    workload: str
    budget: Budget
    verdict: Verdict = Verdict.ERROR
    head: float | None = None
    base: float | None = None
    ratio: Bounds | None = None
    trust: Trust | None = None
    layers: Sequence[LayerChange] = ()
    error: TilewiseError | None = None
    not_judged: str = ""
    suppressed_by: str = ""

    @property
    def code(self) -> str:
        """The rule under which it is found or allowed where its limit does not hold for sure."""
        if self.verdict in _CODES:
            return _CODES[self.verdict]
        if self.budget.max_regression is not None:
            return "TW101"
        return "TW106" if self.budget.metric == LEFT_ON_TABLE else "TW102"


_CODES = {Verdict.UNCERTAIN: "TW103", Verdict.ERROR: "TW104", Verdict.NOT_JUDGED: "TW107"}


class Finding(Record, kw_only=True):
    """field: the key at fault, place: where it stands; fix: the nearest good value and its gain. Empty where none is known."""

    code: str
    severity: Severity
    path: str
    message: str
    place: Place | None = None
    field: str = ""
    fix: str = ""
    suppressed_by: str = ""


class Answer(Record, kw_only=True):
    """calibrations: what answered, by SKU, "" where none did; unchanged: paths of shapes that did not change."""

    verdict: Verdict
    comparisons: Sequence[Comparison]
    findings: Sequence[Finding]
    unchanged: Sequence[str]
    calibrations: Mapping[str, str]
