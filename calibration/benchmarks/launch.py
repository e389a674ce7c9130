"""What a kernel costs besides its work: issue on the host, the gap on the GPU, a node of a graph.

mode: "issue": host time of one eager call while the GPU keeps up or lags; "backward": host time per operator of an
autograd backward; "queued": GPU time per kernel when the host is far ahead (the kernel and the gap behind it);
"graph": GPU time per node of a replayed graph; "graph_launch": host time to launch a graph; "event": an event pair; "plan": host
time of attention over a number of keys that the process has not met.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count as counting
from statistics import median
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from tilewise.calibration.order import interleave
from tilewise.calibration.protocol import Case, Level, Target, Unmeasurable

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Device

NAME = "launch"
COLUMNS = ("mode", "operation", "calls")
REPEATS = 7
QUEUE_SPIN_CYCLES = 12_000_000  # 6 ms: the host issues hundreds of kernels meanwhile
Operation = Callable[[], object]


def operations(device: torch.device) -> dict[str, Operation]:
    """Small operators, each one kernel unless its name says otherwise, none of whose work matters."""
    x, y, w = (torch.randn(64, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    bias, wide = torch.randn(64, device=device, dtype=torch.bfloat16), torch.randn(64, 64, device=device)
    q = torch.randn(1, 4, 64, 64, device=device, dtype=torch.bfloat16)
    tokens = torch.zeros(16, dtype=torch.int64, device=device)
    return {
        "add_": lambda: wide.add_(1),
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "silu": lambda: F.silu(x),
        "cast": lambda: x.float(),
        "mean": lambda: wide.mean(-1, keepdim=True),
        "cat": lambda: torch.cat((x, y), -1),
        "contiguous": lambda: x.t().contiguous(),
        "view": lambda: x.view(8, 8, 64).transpose(1, 2),  # no kernel
        "mm": lambda: torch.mm(x, w),
        "linear": lambda: F.linear(x, w),
        "linear_bias": lambda: F.linear(x, w, bias),
        "layer_norm": lambda: F.layer_norm(x, (64,), bias, bias),
        "softmax": lambda: torch.softmax(x, -1),
        "embedding": lambda: F.embedding(tokens, x),
        "attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
    }


def tracked(device: torch.device) -> dict[str, Callable[[int], Tensor]]:
    """Chains of `count` operators whose backward is timed; the result is a scalar."""
    x = torch.randn(64, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(64, 64, device=device, dtype=torch.bfloat16, requires_grad=True)

    def chain(step: Callable[[Tensor], Tensor]) -> Callable[[int], Tensor]:
        def run(count: int) -> Tensor:
            y = x
            for _ in range(count):
                y = step(y)
            return y.sum()

        return run

    return {"mul": chain(lambda y: y * 0.999), "silu": chain(F.silu), "linear": chain(lambda y: F.linear(y, w))}


ISSUED = (
    "add_", "add", "mul", "silu", "cast", "mean", "cat", "contiguous", "view", "mm", "linear", "linear_bias",
    "layer_norm", "softmax", "embedding", "attention",
)  # fmt: skip
PLAN: dict[str, tuple[tuple[str, int], ...]] = {
    "issue": tuple((name, 1000) for name in ISSUED),
    "forward": (("mul", 300), ("silu", 300), ("linear", 300)),  # with autograd recording
    "backward": (("mul", 300), ("silu", 300), ("linear", 300)),
    "queued": tuple((name, 300) for name in ("add_", "add", "silu", "mean", "cat", "mm", "linear_bias", "softmax")),
    "graph": (
        ("add_", 1000),
        ("add_", 100),
        *((name, 1000) for name in ("add", "silu", "mean", "cat", "mm", "softmax")),
    ),
    "graph_launch": (("add_", 1), ("add_", 100), ("add_", 1000)),
    "event": (("pair", 1),),
    "plan": (("attention", 1),),
}
HOST_MODES = ("issue", "forward", "backward")


def cases(target: Target, level: Level) -> list[Case]:
    """All modes; without a GPU those of the host."""
    groups = []
    for mode, points in PLAN.items():
        if target.vendor == "cpu" and mode not in HOST_MODES:
            continue
        wanted = points[:2] if level is Level.TINY else points
        found = [
            Case(
                family=NAME, key=dict(zip(COLUMNS, (mode, *each), strict=True)), estimate_s=5e-6, bytes=0.0, graph=False
            )
            for each in wanted
        ]
        groups.append((float(len(found)), found))
    return interleave(groups)


def measure(case: Case, device: Device) -> dict[str, float | str]:
    """Seconds per operator (or per graph, or per pair of events)."""
    mode, name, count = (case.key[column] for column in COLUMNS)
    once = MODES[str(mode)](device, str(name), int(count))
    once()
    found = [once() for _ in range(REPEATS)]
    if not found or min(found) <= 0:
        raise Unmeasurable("the host clock did not advance")
    return {"time_s": median(found), "spread": round((max(found) - min(found)) / median(found), 4)}


def host_time(device: Device, issue: Operation, count: int) -> float:
    """Host time per call of `issue`, from an idle GPU to the moment the last call has been issued."""
    device.synchronize()
    begin = time.perf_counter()
    issue()
    end = time.perf_counter()
    device.synchronize()
    return (end - begin) / count


def repeat(operation: Operation, count: int) -> Operation:
    def run() -> None:
        for _ in range(count):
            operation()

    return run


def issue(device: Device, name: str, count: int) -> Callable[[], float]:
    run = repeat(operations(device.torch)[name], count)

    def once() -> float:
        with torch.no_grad():
            return host_time(device, run, count)

    return once


def forward(device: Device, name: str, count: int) -> Callable[[], float]:
    chain = tracked(device.torch)[name]
    return lambda: host_time(device, lambda: chain(count), count)


def backward(device: Device, name: str, count: int) -> Callable[[], float]:
    chain = tracked(device.torch)[name]

    def once() -> float:
        loss = chain(count)
        return host_time(device, loss.backward, count)

    return once


def queued(device: Device, name: str, count: int) -> Callable[[], float]:
    operation = operations(device.torch)[name]

    def once() -> float:
        spin()
        return device_time(repeat(operation, count)) / count

    return once


def spin() -> None:
    """Keep the GPU awake, and busy while the host runs ahead."""
    torch.cuda._sleep(QUEUE_SPIN_CYCLES)  # type: ignore[no-untyped-call]


def device_time(work: Operation) -> float:
    """Seconds on the current stream from before to after `work`."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    work()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e-3


def captured(device: Device, name: str, count: int) -> Operation:
    operation = operations(device.torch)[name]
    operation()  # libraries set themselves up outside of captures
    return device.prepare([operation], count, True)


def graph(device: Device, name: str, count: int) -> Callable[[], float]:
    replay = captured(device, name, count)

    def once() -> float:
        spin()
        return device_time(replay) / count

    return once


def graph_launch(device: Device, name: str, count: int) -> Callable[[], float]:
    replay = captured(device, name, count)
    return lambda: host_time(device, replay, 1)


def event(device: Device, name: str, count: int) -> Callable[[], float]:
    return lambda: device_time(lambda: None)


def plan(device: Device, name: str, count: int) -> Callable[[], float]:
    """One query of 16 sequences over a key more each time, as a growing cache has it."""
    keys = counting(1001)

    def once() -> float:
        shape = (16, 8, next(keys), 64)
        q = torch.randn(16, 8, 1, 64, device=device.torch, dtype=torch.bfloat16)
        k, v = (torch.randn(shape, device=device.torch, dtype=torch.bfloat16) for _ in range(2))
        return host_time(device, lambda: F.scaled_dot_product_attention(q, k, v), 1)

    return once


MODES: dict[str, Callable[[Device, str, int], Callable[[], float]]] = {
    "issue": issue,
    "forward": forward,
    "backward": backward,
    "queued": queued,
    "graph": graph,
    "graph_launch": graph_launch,
    "event": event,
    "plan": plan,
}
