"""How one point is measured. Knows no torch: a Timer (benchmarks/device.py) drives the GPU.

Burst: about 5 ms of the same work, then timed windows of 2.5 ms, each followed by a spin of known cycles that tells the
SM clock. A window below the wanted clock is thrown away and counted. Rests keep the power limit from ever governing.
Sustained: the same work for 2.5 s; the time over the last half second, with clock, power, temperature and throttling,
and a few (time, clock) pairs on the way down. docs/calibration-protocol.md says why.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tilewise.hwdb.record import Record
from tilewise.hwdb.times import State

Call = Callable[[], object]

WINDOW_S = 2.5e-3  # events resolve 0.5 us; short windows keep the power limit away (it acts after some 60 ms)
WARM_S = 5e-3  # an idle H100 is 10-17 % slow for its first 2-5 ms
CALLS_MAX = 300  # calls in one graph: bounds the capture cost of tiny kernels
WINDOWS = (3, 7)  # accepted windows: at least, at most
NOISE = 0.002  # stop when the standard error of the mean is below this share of the median
DISCARDS_MAX = 8
CLOCK_SHARE = 0.985  # of the maximal boost clock: 1950 of 1980 MHz
COOL_S = 0.12  # rest after a window outside the wanted state
LAUNCHED_S = 5e-7  # a call shorter than this launched nothing, such as a transpose of a single head
SUSTAINED_S = 2.5
SUSTAINED_LAST_S = 0.5
ROTATION_BYTES = 160e6  # inputs rotate over at least this, three times the largest L2 of Hopper
SETS_MAX = 24  # input sets at most; calls under 6.7 MB are therefore partly served by L2 (see Case.sets_max)


class Level(Enum):
    """How much of a family's plan is wanted."""

    TINY = "tiny"  # a handful of small cases: CI on a CPU
    FULL = "full"  # everything, in an order of which any prefix is a balanced sample


class Target(Record, kw_only=True):
    """What the plan needs to know of the GPU, taken from its SKU file.

    vendor: "nvidia", "amd" or "cpu"; arch: "sm_90", "gfx942", "cpu"
    peaks:  peak key (hwdb.precision.Format.peak) -> (dense FLOP/s, clock in Hz at which that holds)
    """

    sku: str
    vendor: str
    arch: str
    sms: int
    memory_bytes: float
    l2_bytes: float
    bandwidth_bytes_per_s: float
    max_clock_hz: float
    tdp_w: float
    peaks: Mapping[str, tuple[float, float]]
    gpus: int = 1

    def peak(self, key: str) -> float:
        """Dense FLOP/s at the maximal clock: no kernel can be faster."""
        flops_per_s, clock_hz = self.peaks[key]
        return flops_per_s * max(1.0, self.max_clock_hz / clock_hz)


class Case(Record, kw_only=True):
    """One point to be measured.

    key:      the family's COLUMNS, in order: sizes and names that tell this point from all others
    estimate_s: rough time of one call (a factor of three is good enough)
    bytes:    compulsory traffic of one call, which decides how many input sets rotate
    flops, peak: work and the SKU's peak key it runs against, for the check against physics ("" for none)
    graph:    False where the calls cannot be captured in a graph (the backward of autograd): they are then issued
    sets_max: input sets at most. The default leaves small operands partly in L2; raise it to get them cold
    """

    family: str
    key: Mapping[str, int | str]
    estimate_s: float
    bytes: float
    flops: float = 0.0
    peak: str = ""
    state: State = State.BURST
    graph: bool = True
    sets_max: int = SETS_MAX

    @property
    def sets(self) -> int:
        """Input sets that rotate, so that operands come from device memory."""
        return max(1, min(self.sets_max, math.ceil(ROTATION_BYTES / max(self.bytes, 1.0))))

    @property
    def identity(self) -> tuple[str, ...]:
        """What makes this point one row of the family's file."""
        return (*(str(value) for value in self.key.values()), self.state.name.lower())


class Window(Record):
    """One timed window: seconds per call, and the SM clock right after it (NaN where it cannot be had)."""

    time_s: float
    clock_hz: float


class Telemetry(Record):
    """What the driver says while work runs."""

    power_w: float = math.nan
    temperature_c: float = math.nan
    throttle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured point. spread: (slowest - fastest) / median over the accepted windows."""

    time_s: float
    spread: float
    clock_hz: float
    windows: int
    discarded: int
    telemetry: Telemetry = field(default_factory=Telemetry)
    trail: tuple[Window, ...] = ()  # sustained: (time, clock) on the way to the steady state


class Timer(Protocol):
    """What a device offers to the protocol."""

    def load(self, calls: Sequence[Call]) -> float:
        """Run each call once, so that kernels are loaded; return a rough time of one call in seconds."""

    def prepare(self, calls: Sequence[Call], count: int, graph: bool) -> Call:
        """Something that issues `count` calls, the input sets in rotation."""

    def windows(self, replay: Call, count: int, warm: int, windows: int) -> list[Window]:
        """Issue `warm` replays, then time `windows` replays of `count` calls each, the clock after every one."""

    def telemetry(self) -> Telemetry:
        """Power, temperature and throttle reasons now."""

    def rest(self, seconds: float) -> None:
        """Leave the device idle."""


class Unmeasurable(Exception):
    """A point that has no trustworthy time; the text says why."""


class DeviceLost(Exception):
    """The device no longer answers; what was measured is safe, and the run can be resumed."""


@dataclass(slots=True)
class Pacer:
    """Rests between bursts, in proportion to the work done: longer when the clock was found low, shorter when not."""

    share: float = 0.4
    owed_s: float = 0.0
    since_s: float = field(default_factory=time.monotonic)

    def work(self, seconds: float, discarded: int) -> None:
        self.share = min(4.0, self.share * 1.5) if discarded else max(0.4, self.share * 0.97)
        self.owed_s, self.since_s = seconds * self.share, time.monotonic()

    def rest(self, timer: Timer) -> None:
        """Rest for what is owed, less the time that has gone by since."""
        left_s = self.owed_s - (time.monotonic() - self.since_s)
        if left_s > 0:
            timer.rest(left_s)


def measure(calls: Sequence[Call], case: Case, timer: Timer, wanted_clock_hz: float, pacer: Pacer) -> Sample:
    """Measure one case in its state. Raises Unmeasurable."""
    call_s = timer.load(calls)
    count = max(1, min(CALLS_MAX, round(WINDOW_S / call_s)))
    if count > 1:
        count = max(count, min(len(calls), CALLS_MAX))
    replay = timer.prepare(calls, count, case.graph)
    if case.state is State.SUSTAINED:
        return sustained(replay, count, call_s, timer)
    return burst(replay, count, call_s, timer, wanted_clock_hz, pacer)


def burst(replay: Call, count: int, call_s: float, timer: Timer, wanted_clock_hz: float, pacer: Pacer) -> Sample:
    """Median of windows at the wanted clock. Raises Unmeasurable when that clock is never reached."""
    warm = max(1, math.ceil(WARM_S / (call_s * count)))
    kept: list[Window] = []
    discarded = 0
    pacer.rest(timer)
    while len(kept) < WINDOWS[0] or (noise(kept) > NOISE and len(kept) < WINDOWS[1]):
        wanted = WINDOWS[0] if not kept else 2
        found = timer.windows(replay, count, warm, wanted)
        # a clock that cannot be measured (NaN) is no reason to throw a window away
        good = [window for window in found if not window.clock_hz < wanted_clock_hz]
        kept += good
        lost = len(found) - len(good)
        discarded += lost
        pacer.work(sum(window.time_s for window in found) * count + WARM_S, lost)
        if lost and discarded >= DISCARDS_MAX and len(kept) < WINDOWS[0]:
            raise Unmeasurable(f"{discarded} windows below {wanted_clock_hz / 1e6:.0f} MHz")
        if lost:
            timer.rest(COOL_S)
    return summary(kept, discarded)


def sustained(replay: Call, count: int, call_s: float, timer: Timer) -> Sample:
    """The steady state of long work: time over the last half second, and the way there."""
    begin = time.monotonic()
    repeat = max(1, round(0.02 / (call_s * count)))  # a window every 20 ms; between them the GPU never idles
    trail: list[tuple[float, Window]] = []
    reading = Telemetry()
    while (now := time.monotonic() - begin) < SUSTAINED_S:
        trail += [(now, window) for window in timer.windows(replay, count, repeat, 2)]
        reading = timer.telemetry()
    last = [window for moment, window in trail if moment > SUSTAINED_S - SUSTAINED_LAST_S]
    steps = [trail[int(len(trail) * share)][1] for share in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)]
    timer.rest(0.3)
    return summary(last, 0, telemetry=reading, trail=tuple(steps))


def summary(
    windows: Sequence[Window], discarded: int, telemetry: Telemetry | None = None, trail: tuple[Window, ...] = ()
) -> Sample:
    """Median and spread of windows."""
    times = [window.time_s for window in windows]
    middle = statistics.median(times)
    return Sample(
        time_s=middle,
        spread=(max(times) - min(times)) / middle,
        clock_hz=statistics.median(window.clock_hz for window in windows),
        windows=len(windows),
        discarded=discarded,
        telemetry=telemetry or Telemetry(),
        trail=trail,
    )


def noise(windows: Sequence[Window]) -> float:
    """Standard error of the mean time, as a share of it."""
    times = [window.time_s for window in windows]
    return statistics.stdev(times) / math.sqrt(len(times)) / statistics.mean(times) if len(times) > 1 else math.inf


def check_physics(case: Case, sample: Sample, target: Target) -> None:
    """Raise Unmeasurable for a point faster than arithmetic, memory or any launch allows.

    The bandwidth floor leaves out what L2 can keep of the rotating operands from one turn to the next.
    """
    floor_s = 0.0 if target.vendor == "cpu" else LAUNCHED_S
    if case.peak in target.peaks:
        floor_s = max(floor_s, case.flops / target.peak(case.peak))
    footprint = case.bytes * case.sets
    floor_s = max(floor_s, case.bytes * max(0.0, 1 - 2 * target.l2_bytes / footprint) / target.bandwidth_bytes_per_s)
    if sample.time_s < 0.98 * floor_s:
        raise Unmeasurable(f"{sample.time_s * 1e6:.2f} us is faster than physics allows ({floor_s * 1e6:.2f} us)")
