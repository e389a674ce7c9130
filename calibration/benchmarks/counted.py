"""The program that a profiler runs (calibration/counters.py): every work once, a marker kernel before each."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from tilewise.calibration.benchmarks import benchmark
from tilewise.calibration.benchmarks.device import Device
from tilewise.calibration.driver import NoDriver
from tilewise.calibration.protocol import Case

POOL_BYTES = 2**31  # small: profilers save and restore what a kernel may write to


def run(path: str) -> None:
    """Run the works of a file that counters.collect wrote; under ncu only what lies between start and stop is profiled."""
    device = Device("gpu", NoDriver(), POOL_BYTES)
    mark = torch.zeros(8, dtype=torch.int16, device=device.torch)
    for work in json.loads(Path(path).read_text()):
        case = Case(sets_max=2, **work)
        device.pool.rewind()
        found = benchmark(case.family)
        try:
            assert found is not None and found.prepare is not None
            calls = found.prepare(case, device.pool)
            calls[0]()  # loads kernels and lets autotuners run
            device.synchronize()
            call = calls[-1]
        except Exception as error:  # noqa: BLE001 - what this build does not offer stays an empty row
            print(f"{case.family} {dict(case.key)}: {error}")
            call = device.synchronize
        torch.cuda.profiler.start()
        mark.bitwise_not_()
        call()
        device.synchronize()
        torch.cuda.profiler.stop()
