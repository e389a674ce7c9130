"""From `tilewise calibrate run` to a finished run: SKU, driver, guard, device, plan."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

import tilewise
from tilewise.calibration import guard
from tilewise.calibration.driver import Facts, driver_of
from tilewise.calibration.fit import fit
from tilewise.calibration.protocol import DeviceLost, Level, Target
from tilewise.calibration.run import Run, Settings, wanted_clock_hz
from tilewise.calibration.seal import seal
from tilewise.calibration.suite import Plan, describe, plan
from tilewise.calibration.target import CPU, target
from tilewise.calibration.unseal import unseal
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.record import Record

FAMILIES_OF_MANY = ("collectives",)


class Request(Record, kw_only=True):
    """What the user asked for. device: "gpu", or "cpu" for a rehearsal on tiny sizes."""

    sku: str
    budget_s: float
    output: Path
    device: str = "gpu"
    only: tuple[str, ...] = ()
    allow_nonproduction: bool = False
    fit: bool = True


def planned(request: Request) -> tuple[Target, Level, Plan]:
    """The plan of a request, without touching a device."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if request.device == "cpu":
        goal, level = CPU, Level.TINY
    else:
        database = Database.packaged()
        goal, level = target(database.sku(database.resolve(request.sku).sku), ranks), Level.FULL
    only = request.only or (FAMILIES_OF_MANY if ranks > 1 else ())
    if ranks > 1 and not set(only) <= set(FAMILIES_OF_MANY):
        message = f"under torchrun only {', '.join(FAMILIES_OF_MANY)} can be measured; got --only {','.join(only)}"
        raise InvalidInput(message, reason="BAD_FAMILY", field="only")
    return goal, level, plan(goal, level, only, say)


def listing(request: Request) -> list[str]:
    """The plan as text."""
    goal, _, todo = planned(request)
    return describe(todo, request.budget_s, goal)


def start(request: Request) -> Calibration | None:
    """Measure, and make a calibration of it: the result of `--output` DIR is DIR/<id>, its points lie in DIR/points.

    Returns None on ranks other than the first. Raises NotAvailable where the guard refuses.
    """
    begin = time.monotonic()
    goal, level, todo = planned(request)
    driver = driver_of(goal.vendor, int(os.environ.get("LOCAL_RANK", "0")))
    facts = driver.facts()
    production = _guarded(request, facts)
    say(f"{facts.name}: {sum(len(queue.todo) for queue in todo.queues)} points offered; starting")
    from tilewise.calibration.benchmarks.device import Device  # torch: after the driver was asked, and only now

    device = Device("cpu" if level is Level.TINY else "gpu", driver)
    clock_hz = wanted_clock_hz(facts.max_clock_hz, goal)
    rank = int(os.environ.get("RANK", "0"))
    points = request.output / ("points" if rank == 0 else f"points-rank{rank}")
    settings = Settings(goal, level, request.budget_s, points, clock_hz)
    run = Run(settings, todo, device, about(request, goal, level, facts, production), time.monotonic() - begin)
    try:
        run.go()
        device.close()
    except DeviceLost as error:
        message = f"the GPU no longer answers ({error}); what was measured is safe: run the same command again to go on"
        raise NotAvailable(message, reason="DEVICE_LOST", output=points) from error
    return finish([points], request.output, request.fit) if rank == 0 else None


def finish(runs: Sequence[Path], into: Path, fit_models: bool = True) -> Calibration:
    """Seal the points of runs, whole or cut short, or of calibrations, and fit the models that this version has."""
    with tempfile.TemporaryDirectory() as name:
        sealed = seal([_points(run, Path(name) / str(at)) for at, run in enumerate(runs)], into)
    return fit(sealed, into) if fit_models else sealed


def _points(run: Path, into: Path) -> Path:
    """The folder of a run's points; a calibration's are written to `into`."""
    return unseal(Calibration.open(run), into) if (run / "card.json").is_file() else run


def about(request: Request, goal: Target, level: Level, facts: Facts, production: bool) -> dict[str, Any]:
    """Everything about this run that is not a measurement."""
    from tilewise.calibration.benchmarks.stack import stack

    return {
        "sku": goal.sku,
        "level": level.value,
        "production": production,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "script": f"tilewise {tilewise.__version__} calibrate run",
        "budget_s": request.budget_s,
        "gpu": asdict(facts),
        "serial": facts.serial,
        "ranks": goal.gpus,
        "stack": stack(),
    }


def _guarded(request: Request, facts: Facts) -> bool:
    if request.device == "cpu":
        return False  # a rehearsal; the whole calibration is marked non-production
    database = Database.packaged()
    sku = database.sku(database.resolve(request.sku).sku)
    return guard.check(facts, sku, request.allow_nonproduction)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
