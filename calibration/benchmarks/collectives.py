"""Collectives between all ranks that torchrun started, over any number of nodes. Sizes as nccl-tests counts them.

bytes: the buffer of an all_reduce; the gathered output of an all_gather; the input of a reduce_scatter; what a rank
sends in an all_to_all; the message of send_recv (rank 0 to rank 1). The time is the slowest rank's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from tilewise.calibration.benchmarks.launch import device_time, repeat
from tilewise.calibration.order import interleave, shuffled
from tilewise.calibration.protocol import Call, Case, Level, Target, Unmeasurable

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Device

NAME = "collectives"
COLUMNS = ("op", "ranks", "nodes", "bytes")
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
SIZES = tuple(2**power for power in range(10, 31)) + tuple(3 * 2**power for power in range(12, 28, 3))
LINK_RATE = 2e11  # bytes/s, for estimates only
REPEATS = 5
LARGE_BYTES = 2**24


def cases(target: Target, level: Level) -> list[Case]:
    """Nothing where a rank is alone."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks < 2:
        return []
    nodes = ranks // int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    sizes = SIZES[:3] if level is Level.TINY else SIZES
    return interleave([(1.0, [case(op, ranks, nodes, size) for size in shuffled(sizes, op)]) for op in OPS])


def case(op: str, ranks: int, nodes: int, size: int) -> Case:
    return Case(
        family=NAME,
        key=dict(zip(COLUMNS, (op, ranks, nodes, size), strict=True)),
        estimate_s=2e-5 + size / LINK_RATE,
        bytes=0.0,
        graph=False,
    )


def measure(case: Case, device: Device) -> dict[str, float | str]:
    """Median seconds per call over a few windows of eager calls; all ranks run the same cases in the same order."""
    call = collective(str(case.key["op"]), int(case.key["bytes"]), device)
    count = 50 if int(case.key["bytes"]) < LARGE_BYTES else 10
    window(device, call, 5)
    found = []
    for _ in range(REPEATS):
        dist.barrier()
        found.append(slowest(device, window(device, call, count)))
    return {"time_s": median(found), "spread": round((max(found) - min(found)) / median(found), 4)}


def collective(op: str, size: int, device: Device) -> Call:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    dtype = torch.bfloat16 if device.is_gpu else torch.float32  # gloo reduces no bf16
    elements = max(ranks, size // dtype.itemsize // ranks * ranks)
    x, y = device.pool.output((elements,), dtype), device.pool.output((elements,), dtype)
    x.fill_(1.0)
    part = device.pool.output((elements // ranks,), dtype)

    def send_recv() -> None:
        if rank == 0:
            dist.send(x, 1)
        elif rank == 1:
            dist.recv(y, 0)

    offered: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(x, dist.ReduceOp.AVG if device.is_gpu else dist.ReduceOp.MAX),
        "all_gather": lambda: dist.all_gather_into_tensor(y, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, x),
        "all_to_all": lambda: dist.all_to_all_single(y, x),
        "send_recv": send_recv,
    }
    return offered[op]


def window(device: Device, call: Call, count: int) -> float:
    """Seconds per call on this rank, by events on a GPU."""
    if not device.is_gpu:
        begin = time.perf_counter()
        repeat(call, count)()
        return (time.perf_counter() - begin) / count
    return device_time(repeat(call, count)) / count


def slowest(device: Device, seconds: float) -> float:
    found = torch.tensor([seconds], device=device.torch)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    if not found.item() > 0:
        raise Unmeasurable("no rank took any time")
    return float(found.item())
