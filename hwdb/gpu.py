"""Gpu: a SKU with its active calibration; the one thing the server asks for times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.kernels import limits, machines, power, roofline
from tilewise.hwdb.kernels.collective import all_reduce
from tilewise.hwdb.kernels.engines import Kernels, check_runs, kernels
from tilewise.hwdb.kernels.gemm import taken
from tilewise.hwdb.kernels.software import Origin, code
from tilewise.hwdb.kinds import KINDS
from tilewise.hwdb.launch import Launch, launch
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.remembered import once, times_of
from tilewise.hwdb.sku import Peak, Sku
from tilewise.hwdb.table import Floats, Kind, OperatorTable, present
from tilewise.hwdb.times import State, Times, merge

UNKNOWN = -1  # of rows that no calibration can have measured
ENGINES = -2  # of collectives of an engine's own
CHUNK = 16384
SMALL_S = 3e-5  # a refused operator that the roofline takes to be shorter is answered by it, with its wider interval


class Models(Protocol):
    """What Gpu needs of a calibration (hwdb.calibration.Calibration)."""

    @property
    def id(self) -> str: ...

    @property
    def sha256(self) -> str:
        """Of its content: two calibrations with the same are the same."""

    def model(self, family: str) -> Mapping[str, Any]:
        """The fitted model of a family, empty where there is none."""


Idle = Callable[[Times], Floats]


class Gpu(Record):
    """sku: the datasheet; calibration: what was measured on it, None where nothing was; published: beside a measured one,

    answers rows that name a serving engine's kernels and kinds of operators that were not measured, such as collectives;
    twin: where this one has no calibration, a GPU of the same dies that has: its kernels answer, with this one's figures
    """

    sku: Sku
    calibration: Models | None = None
    published: Models | None = None
    twin: Gpu | None = None

    def predict(self, table: OperatorTable, state: State = State.BURST, idle: Idle | None = None) -> Times:
        """Times of every row: by the calibration's model of its kind where there is one, else by the roofline.

        idle: of burst times, the seconds of each shape in which no kernel runs and the GPU cools (none where it is not given).

        None lies outside of what physics allows (limits.py); what torch does not take has none (gemm/taken.py).
        """
        return taken.checked(table, self._held(table, state, idle))

    def _held(self, table: OperatorTable, state: State, idle: Idle | None) -> Times:
        if self.calibration is None:
            return limits.held(table, self._uncalibrated(table, state), self.sku, state)
        model = self.calibration.model("power")
        if state is State.SUSTAINED and model:
            burst = self._parts(table, State.BURST)
            found = power.sustain(table, burst, model, self.sku, idle(burst) if idle else 0.0)
            return limits.held(table, found, self.sku, state)
        return self._parts(table, state)

    def _uncalibrated(self, table: OperatorTable, state: State) -> Times:
        """By the kernels of its twin, and its collectives where its links are as fast; else by the roofline."""
        if self.twin is None:
            return roofline.predict(table, {}, self.sku, state)
        links = "link_bytes_per_s"
        alike = (
            (table.kind != Kind.COLLECTIVE.value) | (self.sku.number(links) == self.twin.sku.number(links))
        ) & ~table.unknown
        rows, rest = np.flatnonzero(alike), np.flatnonzero(~alike)
        some = table.select(rows)
        times = machines.twins(some, replace(self.twin, sku=self.sku).predict(some, state), self.sku, self.twin.sku)
        return merge(len(table), [(rows, times), (rest, roofline.predict(table.select(rest), {}, self.sku, state))])

    def _parts(self, table: OperatorTable, state: State) -> Times:
        """Every distinct operator is asked for once: candidate shapes have most of theirs in common."""
        if table.shapes > 1:
            rows, place = table.distinct()
            return self._pieces(table.select(rows), state).select(place)
        return self._pieces(table, state)

    def _pieces(self, table: OperatorTable, state: State) -> Times:
        """CHUNK rows at a time: what models work out of them stays in the cache, and in bounded memory."""
        found = []
        for first in range(0, max(len(table), 1), CHUNK):
            rows = slice(first, first + CHUNK)
            part = table if len(table) <= CHUNK else table.select(rows)
            found.append((rows, limits.held(part, self._by_kind(part, state), self.sku, state)))
        return found[0][1] if len(found) == 1 else merge(len(table), found)

    def _by_kind(self, table: OperatorTable, state: State) -> Times:
        kinds = np.where(table.unknown, UNKNOWN, table.kind)
        kinds = np.where((kinds == Kind.COLLECTIVE.value) & (table.library > 0), ENGINES, kinds)
        named = (table.library > 0) & (self.published is not None)
        places = 2 * kinds + named  # one number, since a million rows of pairs are slow to tell apart
        parts = []
        for place in present(places):
            rows = np.flatnonzero(places == place)
            part = table if len(rows) == len(table) else table.select(rows)
            parts.append((rows, self._answered(part, place // 2, bool(place % 2), state)))
        return parts[0][1] if len(parts) == 1 else merge(len(table), parts)

    def _answered(self, table: OperatorTable, kind: int, by_name: bool, state: State) -> Times:
        """Rows of one kind by the first calibration that has a model of them, else by the roofline."""
        if kind == ENGINES:
            return all_reduce.predict(table, self.sku)
        for source in (self.published,) if by_name else (self.calibration, self.published):
            model = source.model(KINDS[Kind(kind)].name) if source is not None and kind != UNKNOWN else None
            if source is not None and model:
                ask = partial(self._fitted, table, Kind(kind), model, state)
                return times_of((self.sku.name, source.sha256, kind, state), table, ask)
        return roofline.predict(table, {}, self.sku, state)

    def _fitted(self, table: OperatorTable, kind: Kind, model: Mapping[str, Any], state: State) -> Times:
        law = "published" if "law" in model else "fitted"
        kernel = import_module(f"tilewise.hwdb.kernels.{KINDS[kind].name}.{law}")
        return self._patched(table, kernel.predict(table, model, self.sku, state), kind, state)

    def _patched(self, table: OperatorTable, times: Times, kind: Kind, state: State) -> Times:
        """The roofline's answer where a row was refused that is too small to matter, or bound by bandwidth alone.

        A router's product lies outside every measured shape; refusing a whole model for three microseconds helps nobody.
        """
        refused = np.flatnonzero(times.refused)
        if not len(refused):
            return times
        rough = roofline.predict(table.select(refused), {}, self.sku, state)
        fair = ~rough.refused & ((kind is Kind.MEMORY) | (rough.time_s < SMALL_S))
        kept = np.delete(np.arange(len(table)), refused[fair])
        answered = np.flatnonzero(fair)
        return merge(len(table), [(kept, times.select(kept)), (refused[fair], rough.select(answered))])

    def library(self, kind: Kind, origin: Origin) -> int:
        """Code of whose kernels these are, for a table's column `library`; 0 where they are not known."""
        source = self._of_engines
        return code(source.model(KINDS[kind].name), origin) if source is not None else 0

    def kernels(self, engine: str) -> Kernels:
        """Which published kernels a serving engine runs; none for "none". Raises NotAvailable (ENGINE_NOT_AVAILABLE)."""
        check_runs(engine, self.sku)
        source = self._of_engines
        if source is None:
            return kernels(engine, {}, self.sku.name)
        models = {kind: source.model(record.name) for kind, record in KINDS.items()}
        key = ("kernels", engine, self.sku.name, source.sha256)
        found = once(key, lambda: kernels(engine, models, self.sku.name))
        return replace(found, calibration=self.published.id) if self.published is not None else found

    @property
    def answers_by(self) -> str:
        """The id of the calibration that answers, of its own or of its twin; "" where the datasheet does."""
        return self._own.id if self._own is not None else ""

    @property
    def _of_engines(self) -> Models | None:
        """The calibration that knows the kernels of engines."""
        return self.published or self.calibration or (self.twin._of_engines if self.twin else None)

    @property
    def _own(self) -> Models | None:
        """The calibration of this GPU's or its twin's own kernels, power and host."""
        return self.calibration or (self.twin.calibration if self.twin else None)

    def energy(self, table: OperatorTable, times: Times, state: State, idle_s: Floats) -> Floats | None:
        """Joules of each shape's step with the bounds of a 90 % interval, shape (3, shapes); None without a power model.

        table, times: as `predict` answered in `state`; idle_s: seconds in which no kernel runs, shape (shapes,)
        """
        model = self._own.model("power") if self._own is not None else None
        if not model:
            return None
        burst = times if state is State.BURST else times.burst or self.predict(table, State.BURST)
        return power.energy(table, burst, times, model, self.sku, idle_s)

    def peak(self, precision: Precision) -> Peak:
        """The dense peak that an MFU is divided by. Raises NotAvailable (PRECISION_NOT_AVAILABLE)."""
        return self.sku.peak(precision)

    def launch(self, mode: str, *, training: bool = False, issue_s: float = 0.0) -> Launch:
        """What launching costs in "eager", "compiled" or "graph" mode. issue_s: as hwdb.launch. Raises InvalidInput (UNKNOWN_MODE)."""
        model = self._own.model("launch") if self._own is not None else None
        found = launch(mode, model, training=training, issue_s=issue_s)
        return found.elsewhere(machines.host_factor()) if self.calibration is None and model else found
