"""The device side of the protocol: operands from a pool, graph replay, windows, clock by a timed spin, kernel names."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from tilewise.calibration.driver import Driver
from tilewise.calibration.protocol import Call, DeviceLost, Telemetry, Unmeasurable, Window

Value = TypeVar("Value")

GIB = 2**30
SPIN_CYCLES = (20_000, 220_000)  # their difference, 200,000 cycles, lasts 0.1 ms: the event resolution is 0.5 % of it
LOAD_SPIN_CYCLES = 400_000  # hides the issue of a call while its rough time is taken
ALIGNMENT = 256  # bytes; what CUDA's own allocator guarantees


class Pool:
    """Large buffers of random normal data from which operands are cut, and scratch to write to.

    A view costs no allocation and no random numbers. Views of one case follow each other in the buffer and wrap at its
    end, so that consecutive input sets never share data unless the buffer is too small for them.
    """

    def __init__(self, device: torch.device, size_bytes: int) -> None:
        self.device = device
        self.size_bytes = size_bytes // ALIGNMENT * ALIGNMENT
        self._buffers: dict[torch.dtype, torch.Tensor] = {}
        self._cursor = 0
        self._scratch_cursor = 0

    def rewind(self) -> None:
        """Start again at the beginning (before each case)."""
        self._cursor = self._scratch_cursor = 0

    def release(self) -> None:
        """Give the memory back; what is wanted again is filled again."""
        self._buffers.clear()
        self.rewind()

    def random(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous view of random normal data; integers are such data times 32, rounded."""
        source = self._buffers.get(dtype)
        if source is None:
            source = self._buffers[dtype] = self._fill(dtype)
        view, self._cursor = self._cut(source, self._cursor, shape, dtype)
        return view

    def output(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous view of scratch memory to write to, its content undefined."""
        scratch = self._buffers.get(torch.uint8)
        if scratch is None:
            scratch = self._buffers[torch.uint8] = torch.zeros(self.size_bytes, dtype=torch.uint8, device=self.device)
        view, self._scratch_cursor = self._cut(scratch, self._scratch_cursor, shape, dtype)
        return view

    def _cut(
        self, buffer: torch.Tensor, cursor: int, shape: Sequence[int], dtype: torch.dtype
    ) -> tuple[torch.Tensor, int]:
        size = math.prod(shape) * dtype.itemsize
        if size > self.size_bytes:
            raise Unmeasurable(f"an operand of {size / GIB:.2f} GiB does not fit the pool")
        if cursor + size > self.size_bytes:
            cursor = 0
        view = buffer[cursor : cursor + size].view(dtype).view(tuple(shape))
        return view, cursor + math.ceil(size / ALIGNMENT) * ALIGNMENT

    def _fill(self, dtype: torch.dtype) -> torch.Tensor:
        """Random normal numbers of that type, as bytes. Built in pieces: fp8 has no generator of its own."""
        generator = torch.Generator(self.device).manual_seed(17)
        buffer = torch.empty(self.size_bytes, dtype=torch.uint8, device=self.device)
        target = buffer.view(dtype)
        piece = min(len(target), 64 * 2**20)
        for start in range(0, len(target), piece):
            part = target[start : start + piece]
            numbers = torch.randn(len(part), generator=generator, device=self.device)
            part.copy_(numbers if dtype.is_floating_point else (numbers * 32).round().clamp(-127, 127))
        return buffer


def _join_ranks(is_gpu: bool) -> int:
    """Under torchrun: choose this rank's GPU and join the others. Returns the number of ranks, 0 when alone."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        return 0
    if is_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if is_gpu else "gloo")
    return ranks


class Device:
    """A GPU (or the CPU, for rehearsal) as the protocol's Timer."""

    def __init__(self, name: str, driver: Driver, pool_bytes: int | None = None) -> None:
        self.driver = driver
        self.is_gpu = name != "cpu"
        self.ranks = _join_ranks(self.is_gpu)
        self.torch = torch.device("cuda", torch.cuda.current_device()) if self.is_gpu else torch.device("cpu")
        if pool_bytes is None:
            pool_bytes = min(6 * GIB, torch.cuda.mem_get_info()[1] // 12) if self.is_gpu else 2**25
        self.pool = Pool(self.torch, pool_bytes)
        if not self.is_gpu:
            torch.set_num_threads(1)  # threads that wait for each other on a shared machine measure the scheduler
        else:
            self._stream = torch.cuda.Stream()
            torch.cuda.set_stream(self._stream)
            self._spin_tells_clock = torch.version.hip is None
            self._mark = torch.zeros(8, dtype=torch.int16, device=self.torch)
            self._mark.bitwise_not_()
            # graphs of all cases share one memory pool, which this first one keeps alive
            self._graphs = torch.cuda.graph_pool_handle()
            self._anchor = self._capture([self._mark.bitwise_not_], 1)

    def synchronize(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()

    def rest(self, seconds: float) -> None:
        self.synchronize()
        time.sleep(seconds)

    def telemetry(self) -> Telemetry:
        return self.driver.telemetry()

    def load(self, calls: Sequence[Call]) -> float:
        for call in calls[:2]:
            call()
        self.synchronize()
        if not self.is_gpu:
            begin = time.perf_counter()
            calls[0]()
            return max(time.perf_counter() - begin, 1e-7)
        if self._spin_tells_clock:
            torch.cuda._sleep(LOAD_SPIN_CYCLES)
        start = self._event()
        for call in (list(calls) * 2)[:2]:
            call()
        stop = self._event()
        stop.synchronize()
        return float(max(start.elapsed_time(stop) / 2e3, 2e-6))

    def prepare(self, calls: Sequence[Call], count: int, graph: bool) -> Call:
        if graph and self.is_gpu:
            captured = self._capture(calls, count)
            return captured.replay
        return lambda: [calls[i % len(calls)]() for i in range(count)]

    def windows(self, replay: Call, count: int, warm: int, windows: int) -> list[Window]:
        if not self.is_gpu:
            return self._host_windows(replay, count, windows)
        for _ in range(warm):
            replay()
        marks = [self._timed(replay) for _ in range(windows)]
        marks[-1][-1].synchronize()
        clock_hz = math.nan if self._spin_tells_clock else self.driver.clock_hz()
        return [self._window(mark, count, clock_hz) for mark in marks]

    def kernels(self, calls: Iterable[Call]) -> list[str]:
        """The kernels that each call launches, joined by "|", in order; "" for a call that raised.

        A marker kernel before and after each call keeps out what only prepares it.

        Raises Unmeasurable when the profiler lost a marker (it drops events when its buffers are full).
        """
        wanted = 0
        with profile(activities=[ProfilerActivity.CUDA]) as session:
            for call in calls:
                self._mark.bitwise_not_()
                with contextlib.suppress(RuntimeError):
                    call()
                self._mark.bitwise_not_()
                wanted += 1
            self.synchronize()
        found = [
            e for e in session.profiler.kineto_results.events() if e.device_type() != torch._C._autograd.DeviceType.CPU
        ]
        names = [e.name() for e in sorted(found, key=lambda e: e.start_ns())]
        groups: list[list[str]] = []
        for name in names:
            if "bitwise_not" in name:
                groups.append([])
            elif groups and not name.lower().startswith(("mem", "gpu_user")):
                groups[-1].append(name)
        if len(groups) != 2 * wanted:
            raise Unmeasurable(f"the profiler saw {len(groups) // 2} of {wanted} calls")
        return ["|".join(group) for group in groups[::2]]

    def agree(self, willing: bool) -> bool:
        """Whether all ranks are willing to go on (one process: whether this one is)."""
        if not self.ranks:
            return willing
        vote = torch.tensor(int(willing), device=self.torch)
        torch.distributed.all_reduce(vote, torch.distributed.ReduceOp.MIN)
        return bool(vote.item())

    def share(self, value: Value) -> Value:
        """The first rank's value, on all ranks: what one of them has done, none does again."""
        if not self.ranks:
            return value
        box = [value]
        torch.distributed.broadcast_object_list(box)
        return box[0]

    def close(self) -> None:
        """Leave the other ranks, when all are done: a process that just ends takes its peers down."""
        if self.ranks:
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()

    def recover(self) -> None:
        """After a failed point: a device that no longer answers raises here, and the run ends."""
        try:
            self.synchronize()
        except RuntimeError as error:
            raise DeviceLost(str(error).splitlines()[0]) from error
        if self.is_gpu:
            torch.cuda.empty_cache()

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _timed(self, replay: Call) -> list[torch.cuda.Event]:
        """Events around one replay, then around two spins of known cycles."""
        events = [self._event()]
        replay()
        events.append(self._event())
        if self._spin_tells_clock:
            events.append(self._event())
            for cycles in SPIN_CYCLES:
                torch.cuda._sleep(cycles)
                events.append(self._event())
        return events

    def _window(self, events: list[torch.cuda.Event], count: int, clock_hz: float) -> Window:
        if self._spin_tells_clock:
            short_ms, long_ms = events[2].elapsed_time(events[3]), events[3].elapsed_time(events[4])
            clock_hz = (SPIN_CYCLES[1] - SPIN_CYCLES[0]) / ((long_ms - short_ms) * 1e-3)
        return Window(events[0].elapsed_time(events[1]) * 1e-3 / count, clock_hz)

    def _host_windows(self, replay: Call, count: int, windows: int) -> list[Window]:
        found = []
        for _ in range(windows):
            begin = time.perf_counter()
            replay()
            found.append(Window((time.perf_counter() - begin) / count, math.nan))
        return found

    def _capture(self, calls: Sequence[Call], count: int) -> torch.cuda.CUDAGraph:
        """Capture without torch.cuda.graph(), whose cache emptying would cost more than the window."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        graph.capture_begin(pool=self._graphs, capture_error_mode="thread_local")
        try:
            for i in range(count):
                calls[i % len(calls)]()
        except BaseException:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
        return graph
