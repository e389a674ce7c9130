"""What advice says: plain frozen dataclasses, filled by the modules beside it."""

from __future__ import annotations

from enum import StrEnum

from tilewise.hwdb.record import Record
from tilewise.server.step.report import Report


class Kind(StrEnum):
    """What kind of change a piece of advice is, in the order of what it costs whoever follows it."""

    EXECUTION = "execution"
    FREE_WIN = "free_win"
    RESHAPE = "reshape"
    PRECISION = "precision"


class Verdict(StrEnum):
    """Whether a gain can be told from the error of the prediction."""

    FASTER = "faster"
    CANNOT_TELL = "cannot_tell"
    SLOWER = "slower"


class Effect(Record, kw_only=True):
    """What a change does to one workload on one GPU.

    time_ratio: GPU-seconds of a token after over before, with the bounds of its 90 % interval; step_ratio: of the step's time
    energy_ratio: the same of energy; None where power is not modelled
    """

    time_ratio: float
    low: float
    high: float
    step_ratio: float
    after: Report
    energy_ratio: float | None


class Recommendation(Record, kw_only=True):
    """One piece of advice.

    changes: (field, value as it is, value advised); effects: one for each that is asked, in their order
    score, low, high: after over before of what is to be made smaller, over all that is asked, with its 90 % interval
    parameter_change, memory_change: after less before; bytes resident on one GPU, the largest of all that is asked
    cause: stable code; message: why, and at what price, in one sentence
    """

    kind: Kind
    changes: tuple[tuple[str, str, str], ...]
    effects: tuple[Effect, ...]
    score: float
    low: float
    high: float
    parameter_change: int
    memory_change: int
    cause: str
    message: str

    @property
    def splits(self) -> bool:
        """Whether it changes how many GPUs share the model: then GPU-seconds and seconds part."""
        return any(field == "tensor_parallel" for field, _, _ in self.changes)

    @property
    def verdict(self) -> Verdict:
        if self.high < 1:
            return Verdict.FASTER
        return Verdict.SLOWER if self.low > 1 else Verdict.CANNOT_TELL


class Advice(Record, kw_only=True):
    """The whole answer: the model as it is (one report for each that is asked), advice, one sentence, what it leaves out."""

    baseline: tuple[Report, ...]
    recommendations: tuple[Recommendation, ...]
    summary: str
    notes: tuple[str, ...]
    candidates: int
