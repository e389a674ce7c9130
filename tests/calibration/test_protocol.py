"""The protocol against an imagined GPU: a clock that falls under load and recovers in rest."""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tilewise.calibration.protocol import (
    Call,
    Case,
    Pacer,
    Sample,
    Telemetry,
    Unmeasurable,
    Window,
    check_physics,
    measure,
)
from tilewise.calibration.target import target
from tilewise.hwdb.database import Database
from tilewise.hwdb.times import State

H100 = target(Database.packaged().sku("h100-sxm5-80gb"))
WANTED_HZ = 0.985 * 1.98e9


@dataclass
class Gpu:
    """Seconds a call at 1980 MHz, and how many windows after the start still lie below the clock."""

    call_s: float = 1e-4
    slow_windows: int = 0
    noise: float = 0.0
    real_s: float = 0.0
    rests: list[float] = field(default_factory=list)
    seen: int = 0
    draw: random.Random = field(default_factory=lambda: random.Random(1))

    def load(self, calls: Sequence[Call]) -> float:
        return self.call_s

    def prepare(self, calls: Sequence[Call], count: int, graph: bool) -> Call:
        return lambda: None

    def windows(self, replay: Call, count: int, warm: int, windows: int) -> list[Window]:
        found = []
        time.sleep(self.real_s)
        for _ in range(windows):
            self.seen += 1
            clock_hz = 1.7e9 if self.seen <= self.slow_windows else 1.98e9
            wobble = 1 + self.noise * self.draw.uniform(-1, 1)
            found.append(Window(self.call_s * 1.98e9 / clock_hz * wobble, clock_hz))
        return found

    def telemetry(self) -> Telemetry:
        return Telemetry(power_w=690.0, temperature_c=60.0, throttle="power cap")

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)


def case(**changes: object) -> Case:
    settings = {"family": "gemm", "key": {"m": 1}, "estimate_s": 1e-4, "bytes": 1e8, **changes}
    return Case(**settings)  # type: ignore[arg-type]


def take(gpu: Gpu, **changes: object) -> Sample:
    return measure([lambda: None], case(**changes), gpu, WANTED_HZ, Pacer())


def test_a_quiet_gpu_needs_three_windows() -> None:
    sample = take(Gpu(noise=0.0005))
    assert (sample.windows, sample.discarded) == (3, 0)
    assert sample.time_s == pytest.approx(1e-4, rel=1e-3)
    assert sample.spread < 0.002


def test_a_noisy_gpu_gets_more_windows_and_says_its_spread() -> None:
    sample = take(Gpu(noise=0.05))
    assert sample.windows > 3
    assert sample.spread > 0.02


def test_windows_below_the_wanted_clock_are_thrown_away_counted_and_followed_by_rest() -> None:
    gpu = Gpu(slow_windows=2)
    sample = take(gpu)
    assert sample.discarded == 2
    assert sample.clock_hz == 1.98e9
    assert sample.time_s == pytest.approx(1e-4)
    assert max(gpu.rests) >= 0.12


def test_a_gpu_that_never_reaches_its_clock_gives_no_point() -> None:
    with pytest.raises(Unmeasurable, match="below 1950 MHz"):
        take(Gpu(slow_windows=10_000))


def test_rests_grow_when_clocks_were_low_and_shrink_again() -> None:
    pacer = Pacer()
    at_first = pacer.share
    pacer.work(0.02, discarded=2)
    longer = pacer.share
    for _ in range(50):
        pacer.work(0.02, discarded=0)
    assert longer > at_first
    assert pacer.share == pytest.approx(at_first)


@pytest.mark.parametrize(("flops", "peak", "moved"), [(2e11, "bf16", 1.0), (0.0, "", 1e9)])
def test_a_point_faster_than_physics_is_an_error(flops: float, peak: str, moved: float) -> None:
    impossible = Sample(time_s=1e-4, spread=0.0, clock_hz=1.98e9, windows=3, discarded=0)
    with pytest.raises(Unmeasurable, match="faster than physics"):
        check_physics(case(flops=flops, peak=peak, bytes=moved), impossible, H100)


def test_a_call_that_launched_nothing_is_an_error() -> None:
    nothing = Sample(time_s=6e-9, spread=0.0, clock_hz=1.98e9, windows=3, discarded=0)
    with pytest.raises(Unmeasurable, match="faster than physics allows"):
        check_physics(case(bytes=1e3), nothing, H100)


def test_the_cache_may_serve_small_operands_faster_than_memory_could() -> None:
    quick = Sample(time_s=1e-6, spread=0.0, clock_hz=1.98e9, windows=3, discarded=0)
    check_physics(case(bytes=4e6), quick, H100)


def test_input_sets_rotate_over_160_megabytes_but_are_24_at_most() -> None:
    assert case(bytes=1e9).sets == 1
    assert case(bytes=50e6).sets == 4
    assert case(bytes=1e3).sets == 24
    assert case(bytes=1e6, sets_max=256).sets == 160


def test_a_sustained_point_carries_power_clock_and_the_way_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.calibration.protocol.SUSTAINED_S", 0.4)
    monkeypatch.setattr("tilewise.calibration.protocol.SUSTAINED_LAST_S", 0.3)
    sample = take(Gpu(slow_windows=10**9, real_s=0.005), state=State.SUSTAINED)
    assert sample.telemetry.power_w == 690.0
    assert sample.clock_hz == 1.7e9
    assert len(sample.trail) == 6
    assert not math.isnan(sample.trail[0].clock_hz)
