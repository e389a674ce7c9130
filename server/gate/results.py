"""What a check asks and answers. server/messages/gate.py turns it into the contract's messages and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.times import Trust, Wall
from tilewise.server.gate.change import Change
from tilewise.server.gate.places import Place
from tilewise.server.gate.policy import Budget, Severity
from tilewise.server.step.intervals import Bounds


class Verdict(IntEnum):
    """Whether a limit holds, the worst last."""

    PASS = 1
    UNCERTAIN = 2  # the difference lies inside the error band
    FAIL = 3
    ERROR = 4  # it could not be evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """changes: `count` of them by path, each made when it is judged; calibration: answers in place of the active one

    policy_before: text of the policy before the change, None where it is the same; day: as 2026-11-28
    """

    policy: str
    policy_path: str
    policy_before: str | None
    changes: Iterable[Change]
    count: int
    day: str
    calibration: str


@dataclass(frozen=True, slots=True)
class LayerChange:
    """Seconds of one kind of layer in one step, 0 where it is not; wall: what bounds it after the change."""

    name: str
    base_s: float
    head_s: float
    wall: Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of a configuration against one budget. base: None where there is nothing before; ratio: of head to base

    error: why there is no verdict, head and trust None where there is no value either; layers: the largest change first
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
    suppressed_by: str = ""

    @property
    def code(self) -> str:
        """The rule under which it is found or allowed where its limit does not hold for sure."""
        if self.verdict == Verdict.UNCERTAIN:
            return "TW103"
        return "TW102" if self.budget.max_regression is None else "TW101"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """field: the key at fault, place: where it stands; fix: the nearest good value and its gain. Empty where none is known."""

    code: str
    severity: Severity
    path: str
    message: str
    place: Place | None = None
    field: str = ""
    fix: str = ""
    suppressed_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """calibrations: what answered, by SKU, "" where none did; unchanged: paths of shapes that did not change."""

    verdict: Verdict
    comparisons: Sequence[Comparison]
    findings: Sequence[Finding]
    unchanged: Sequence[str]
    calibrations: Mapping[str, str]
