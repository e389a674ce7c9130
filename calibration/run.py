"""One calibration run: measure what the plan holds until the budget is spent, every finished point safe on disk."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from tilewise.calibration import gemm_plan
from tilewise.calibration.benchmarks import SHARES
from tilewise.calibration.naming import COLUMNS as NAME_COLUMNS
from tilewise.calibration.naming import Names
from tilewise.calibration.points import PointFile
from tilewise.calibration.protocol import (
    CLOCK_SHARE,
    SUSTAINED_S,
    Case,
    Level,
    Pacer,
    Sample,
    Target,
    check_physics,
    measure,
)
from tilewise.calibration.suite import Clock, Plan, next_queue, skip_done
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Device

RESULTS = (
    "state", "time_us", "spread", "clock_mhz", "windows", "discarded", "power_w", "temperature_c", "throttle", "trail",
)  # fmt: skip
FAILURE_COLUMNS = ("family", "key", "state", "reason")
NAMING_S = 0.002  # what naming one timed point costs at the end
CHOICES, CHOICES_S = 500_000, 14.0  # shapes to ask the library's heuristic for, and seconds to do it in
NAME_STEP_S = 1.5  # what naming a chunk of shapes may cost


class Settings(Record):
    """What the user asked for."""

    target: Target
    level: Level
    budget_s: float
    directory: Path
    wanted_clock_hz: float = 0.0  # 0: any clock will do (CPU)


class Run:
    """The state of one run: files, plan, clock."""

    def __init__(self, settings: Settings, plan: Plan, device: Device, about: dict[str, Any], begun_s: float) -> None:
        self.settings, self.plan, self.device = settings, plan, device
        self.directory = settings.directory
        self.directory.mkdir(parents=True, exist_ok=True)
        keys = {name: list(bench.columns) for name, bench in plan.benchmarks.items()}
        self.about = self._about({**about, "keys": keys, "wanted_clock_hz": settings.wanted_clock_hz})
        self.clock = Clock(settings.budget_s, float(self.about["used_s"]) + begun_s)
        self.files = {
            name: PointFile(self.directory / f"{name}.csv", (*bench.columns, *bench.extras, *RESULTS))
            for name, bench in plan.benchmarks.items()
        }
        self.failures = PointFile(self.directory / "failures.csv", FAILURE_COLUMNS)
        every = gemm_plan.census(settings.target, settings.level) if "gemm" in plan.benchmarks else []
        self.names = Names(PointFile(self.directory / "names.csv", NAME_COLUMNS), plan.benchmarks, every)
        self.pacer = Pacer()
        self.discarded = self.failed = 0
        self._told = 0.0
        self._want_names_again()
        skip_done(plan, device.share(self._done()))

    def go(self) -> None:
        """Measure until the budget is spent or nothing is left; names come last. Raises DeviceLost."""
        queues = self.plan.queues
        reserve_s = (SHARES["census"] + SHARES["choices"]) * self.settings.budget_s if self.device.is_gpu else 0.0
        while self.device.agree(self.clock.left_s > reserve_s + NAMING_S * self.names.waiting):
            queue = next_queue(queues)
            if queue is None:
                break
            begin = time.monotonic()
            if queue.name == "power" and self.clock.left_s - reserve_s < SUSTAINED_S:
                queue.position = len(queue.todo)  # no time left for a sustained point
                continue
            self._one(queue.take())
            queue.used_s += time.monotonic() - begin
            self._tell()
        # the profiler stays attached to the process once it has run, so no point is timed after it
        while self.device.is_gpu and not self.names.empty and (self.names.waiting or self.clock.left_s > NAME_STEP_S):
            self.names.step(self.device)
            self._tell()
        self._ask_choices()
        self._tell(last=True)
        self.close()

    def _ask_choices(self) -> None:
        """Ask the library's heuristic for the kernel of many more shapes; costs the CPU seconds and the GPU none."""
        path = self.directory / "choices.npz"
        if not self.device.is_gpu or self.settings.target.vendor != "nvidia" or path.exists():
            return
        if "gemm" not in self.plan.benchmarks or self.device.ranks:
            return
        from tilewise.calibration.benchmarks import choices

        self.device.pool.release()  # every process that asks brings a context of half a gigabyte
        self.device.recover()
        try:
            found = choices.harvest(gemm_plan.choices(self.settings.target, CHOICES), CHOICES_S)
        except (OSError, RuntimeError) as error:
            print(f"no kernel choices: {error}", file=sys.stderr)
            return
        choices.save(path, found)
        print(f"kernel choices of {len(found['m'])} shapes", file=sys.stderr, flush=True)

    def close(self) -> None:
        for file in (*self.files.values(), self.failures, self.names.file):
            file.close()
        self._save_about()

    def _one(self, case: Case) -> None:
        """Measure one case and write its row, or the reason why it has none."""
        try:
            row = self._measure(case)
        except Exception as error:  # noqa: BLE001 - compilers and libraries raise all kinds; one point must not end the run
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
            self._fail(case, reason)
            return
        self.discarded += int(str(row.get("discarded", 0)))
        self.files[case.family].append([{**case.key, "state": case.state.name.lower(), **row}])
        self.names.want(case)

    def _measure(self, case: Case) -> dict[str, object]:
        bench, device = self.plan.benchmarks[case.family], self.device
        device.pool.rewind()
        if bench.measure is not None:
            found = bench.measure(case, device)
            time_s, clock_hz = float(found["time_s"]), float(found.get("clock_hz", math.nan))
            return {**found, "time_us": time_s * 1e6, "clock_mhz": clock_hz / 1e6}
        assert bench.prepare is not None
        calls = bench.prepare(case, device.pool)
        sample = measure(calls, case, device, self.settings.wanted_clock_hz, self.pacer)
        check_physics(case, sample, self.settings.target)
        return as_row(sample)

    def _fail(self, case: Case, reason: str) -> None:
        key = "/".join(map(str, case.key.values()))
        row = {"family": case.family, "key": key, "state": case.state.name.lower(), "reason": reason}
        self.failures.append([row])
        self.failed += 1
        self.device.recover()

    def _done(self) -> dict[str, set[tuple[str, ...]]]:
        """What an earlier run measured, or found to be impossible."""
        done: dict[str, set[tuple[str, ...]]] = {}
        for name, file in self.files.items():
            columns = self.plan.benchmarks[name].columns
            done[name] = {(*(row[column] for column in columns), row["state"]) for row in file.rows()}
        for row in self.failures.rows():
            done.setdefault(row["family"], set()).add((*row["key"].split("/"), row["state"]))
        return done

    def _want_names_again(self) -> None:
        """Points that an interrupted run timed but had not named yet."""
        done = self._done()
        for queue in self.plan.queues:
            for case in queue.todo:
                if case.identity in done.get(case.family, ()):
                    self.names.want(case)

    def _about(self, about: dict[str, Any]) -> dict[str, Any]:
        """What this run is, kept beside the points; an interrupted run goes on only on the same GPU and stack."""
        path = self.directory / "run.json"
        if not path.exists():
            return {**about, "used_s": 0.0}
        earlier: dict[str, Any] = json.loads(path.read_text())
        for key in ("sku", "serial", "stack", "script", "level"):
            if earlier.get(key) != about.get(key):
                found = f"{self.directory} holds a run with another {key}: {earlier.get(key)}; now {about.get(key)}"
                raise InvalidInput(f"{found}. Choose another --output", reason="OTHER_RUN", field="output")
        keys = {**earlier["keys"], **about["keys"]}
        return {**about, "keys": keys, "started": earlier["started"], "used_s": earlier["used_s"]}

    def _save_about(self) -> None:
        self.about["used_s"] = round(self.clock.used_s, 1)
        temporary = self.directory / "run.json.new"
        temporary.write_text(json.dumps(self.about, indent=1, sort_keys=True) + "\n")
        os.replace(temporary, self.directory / "run.json")

    def _tell(self, last: bool = False) -> None:
        """Progress and time left, every two seconds."""
        if os.environ.get("RANK", "0") != "0" or (not last and time.monotonic() - self._told < 2):
            return
        self._told = time.monotonic()
        self._save_about()
        done = ", ".join(
            f"{queue.name} {queue.done + queue.position}/{queue.total_offered}" for queue in self.plan.queues
        )
        left = max(0, int(self.clock.left_s))
        lost = f"windows thrown away {self.discarded}, points failed {self.failed}"
        text = f"{done}, names {len(self.names.known)}; {lost} | {left // 60}:{left % 60:02d} left"
        print(text, file=sys.stderr, flush=True)


def as_row(sample: Sample) -> dict[str, object]:
    """A sample in the units and columns of the file."""
    reading = asdict(sample.telemetry)
    return {
        "time_us": sample.time_s * 1e6,
        "spread": round(sample.spread, 5),
        "clock_mhz": sample.clock_hz / 1e6,
        "windows": sample.windows,
        "discarded": sample.discarded,
        **reading,
        "trail": " ".join(f"{step.time_s * 1e6:.5g}@{step.clock_hz / 1e6:.0f}" for step in sample.trail),
    }


def wanted_clock_hz(max_clock_hz: float | None, target: Target) -> float:
    """The clock below which a burst window is thrown away."""
    return 0.0 if target.vendor == "cpu" else CLOCK_SHARE * (max_clock_hz or target.max_clock_hz)
