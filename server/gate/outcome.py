"""What one side of a change costs on one GPU under one workload: predicted now, or saved earlier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import Trust, Wall
from tilewise.server.architecture import Architecture, read_with
from tilewise.server.architecture.stated import check_stated
from tilewise.server.operators.lengths import check_length
from tilewise.server.step.predict import predict
from tilewise.server.step.ratio import Timed
from tilewise.server.step.report import Report
from tilewise.server.workload import Workload


class Outcome(Record, kw_only=True):
    """values: by metric (server.gate.metrics), those that need a time missing where the step has none, for `refusal`

    layers: seconds and wall by kind of layer; timed: the step with its operators, None where it has no time
    """

    values: Mapping[str, float]
    timed: Timed | None
    trust: Trust
    layers: Mapping[str, tuple[float, Wall]]
    fits: bool = True
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One text of a configuration. Predictions are kept: budgets ask for the same ones."""

    text: str
    path: str
    _known: dict[tuple[str, Workload], Outcome | TilewiseError] = field(default_factory=dict)
    _read: list[Architecture] = field(default_factory=list)

    @property
    def architecture(self) -> Architecture:
        """Raises InvalidInput and TooLarge."""
        if not self._read:
            check_stated(self.text)
            self._read.append(read_with(self.text, {}, self.path))
        return self._read[0]

    def outcome(self, gpu: Gpu, workload: Workload) -> Outcome | TilewiseError:
        """What it costs, or why that cannot be said."""
        key = gpu.sku.name, workload
        if key not in self._known:
            try:
                check_length(self.architecture, workload)
                self._known[key] = predicted(predict(gpu, self.architecture, workload, detailed=False))
            except TilewiseError as error:
                self._known[key] = error
        return self._known[key]


def predicted(report: Report) -> Outcome:
    """What a report says."""
    step = report.step
    values = {"memory_bytes": float(report.memory.total_bytes), "parameter_count": float(report.parameters.total)}
    if step.time is not None:
        values |= {
            "time_s": step.time.time_s,
            "tokens_per_s": step.tokens_per_s or 0.0,
            "mfu": step.mfu or 0.0,
            "tile_waste": (step.padding_s + step.wave_s + step.alignment_s) / step.time.time_s,
        }
    layers = {layer.name: (sum(layer.walls), layer.wall) for layer in report.layers}
    return Outcome(
        values=values, timed=Timed.of(report) if step.time else None, trust=step.trust, layers=layers, fits=report.fits,
        refusal=step.refusal,
    )  # fmt: skip
