"""One file an operator family; the only place of the project that imports torch.

A benchmark is a module with

    NAME: str                       the family; its file is measurements/<NAME>.csv
    COLUMNS: tuple[str, ...]        the key columns, in the order of Case.key
    EXTRAS: tuple[str, ...] = ()    more columns of a row (what `measure` returns beside time_s)

    def cases(target: Target, level: Level) -> list[Case]
        The plan, without touching a device (and without importing torch at module level cost where avoidable), in an
        order of which any prefix is a balanced sample (calibration.order.interleave). Cases whose state is
        State.SUSTAINED are scheduled by the suite under the share of "power".

    def prepare(case: Case, pool: Pool) -> list[Call]
        `case.sets` calls, one per rotating input set, cut from the pool: `pool.random(shape, dtype)` is a contiguous
        view of random normal data, `pool.output(shape, dtype)` scratch to write to. No allocation, no RNG.
        Raise calibration.protocol.Unmeasurable (or let torch raise) for what this build does not offer.

and, only where a time per call by graph replay is the wrong question (issue cost, collectives, copies to the host):

    def measure(case: Case, device: Device) -> dict[str, float | str]
        Own timing, used in place of `prepare`. Must hold "time_s"; may hold "spread", "clock_hz" and the EXTRAS.

The runner adds to every row: state, time_us, spread, clock_mhz, windows, discarded, power_w, temperature_c, throttle,
kernel (names joined by "|", from the profiler).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewise.calibration.protocol import Call, Case, Level, Target
from tilewise.hwdb.record import Record

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Device, Pool

# Share of the time budget of every family. "power": the sustained points of all families; "census": kernel names from
# the profiler; "choices": answers of the library's heuristic, which cost the GPU nothing.
SHARES: dict[str, float] = {
    "gemm": 0.36,
    "power": 0.10,
    "census": 0.02,
    "choices": 0.03,
    "attention": 0.15,
    "memory": 0.04,
    "pointwise": 0.07,
    "norms": 0.06,
    "loss": 0.03,
    "routing": 0.03,
    "optimizer": 0.01,
    "grouped_gemm": 0.035,
    "batched_gemm": 0.01,
    "special": 0.02,
    "launch": 0.01,
    "transfer": 0.005,
    "compiled": 0.06,
    "collectives": 0.03,
}
FAMILIES: tuple[str, ...] = tuple(name for name in SHARES if name not in ("power", "census", "choices"))


class Benchmark(Record):
    """A benchmark module, typed."""

    name: str
    columns: tuple[str, ...]
    extras: tuple[str, ...]
    cases: Callable[[Target, Level], list[Case]]
    prepare: Callable[[Case, Pool], list[Call]] | None
    measure: Callable[[Case, Device], dict[str, float | str]] | None


def benchmark(name: str) -> Benchmark | None:
    """The benchmark of a family, or None where this version has none."""
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        return None
    return Benchmark(
        name=module.NAME,
        columns=module.COLUMNS,
        extras=getattr(module, "EXTRAS", ()),
        cases=module.cases,
        prepare=getattr(module, "prepare", None),
        measure=getattr(module, "measure", None),
    )
