"""Copies between host and device, from pinned and from pageable memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

import torch

from tilewise.calibration.order import shuffled
from tilewise.calibration.protocol import Case, Level, Target

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Device

NAME = "transfer"
COLUMNS = ("direction", "memory", "bytes")
SIZES = tuple(2**power for power in (12, 14, 16, 18, 20, 22, 24, 26, 28))
REPEATS = 5
HOST_RATE = 2.5e10  # bytes/s, for estimates only


def cases(target: Target, level: Level) -> list[Case]:
    sizes = SIZES[:2] if level is Level.TINY else SIZES
    keys = [(way, memory, size) for size in sizes for memory in ("pinned", "pageable") for way in ("h2d", "d2h")]
    return [
        Case(
            family=NAME,
            key=dict(zip(COLUMNS, key, strict=True)),
            estimate_s=1e-5 + key[2] / HOST_RATE,
            bytes=0.0,  # HBM is not what bounds it
            graph=False,
        )
        for key in shuffled(keys, NAME)
    ]


def measure(case: Case, device: Device) -> dict[str, float | str]:
    """Seconds per copy, by the host's clock around a few copies and a wait."""
    direction, memory, size = (case.key[column] for column in COLUMNS)
    there = device.pool.output((int(size),), torch.uint8)
    here = host_memory(memory == "pinned" and device.is_gpu)[: int(size)]
    source, target = (here, there) if direction == "h2d" else (there, here)

    def copy() -> object:
        return target.copy_(source, non_blocking=True)

    count = max(2, min(50, int(2e-3 / case.estimate_s)))
    timed(device, copy, count)
    found = [timed(device, copy, count) for _ in range(REPEATS)]
    return {"time_s": median(found), "spread": round((max(found) - min(found)) / median(found), 4)}


def timed(device: Device, copy: Callable[[], object], count: int) -> float:
    device.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        copy()
    device.synchronize()
    return (time.perf_counter() - begin) / count


@cache
def host_memory(pinned: bool) -> torch.Tensor:
    """One buffer of the largest size: pinning is slow."""
    return torch.ones(SIZES[-1], dtype=torch.uint8, pin_memory=pinned)
