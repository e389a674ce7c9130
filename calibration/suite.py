"""What is measured, in which order, and how the budget is shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewise.calibration import sorts
from tilewise.calibration.benchmarks import FAMILIES, SHARES, Benchmark, benchmark
from tilewise.calibration.protocol import SUSTAINED_S, Case, Level, Target
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import State

POINT_S = 0.05  # what a burst point costs, for the plan's estimate


@dataclass(slots=True)
class Queue:
    """The cases of one family that are still to do, and the time the family has used."""

    name: str
    share: float
    todo: list[Case]
    done: int = 0
    used_s: float = 0.0
    position: int = 0

    @property
    def total_offered(self) -> int:
        return self.done + len(self.todo)

    @property
    def empty(self) -> bool:
        return self.position >= len(self.todo)

    def take(self) -> Case:
        self.position += 1
        return self.todo[self.position - 1]


class Plan(Record):
    """Benchmarks by family, and the queues: one a family, and "power" for the sustained points of all of them."""

    benchmarks: dict[str, Benchmark]
    queues: list[Queue]


def plan(target: Target, level: Level, only: Sequence[str] = (), tell: Callable[[str], None] = lambda _: None) -> Plan:
    """Every case of the wanted families."""
    benchmarks: dict[str, Benchmark] = {}
    queues: list[Queue] = []
    power: list[list[Case]] = []
    for name in FAMILIES:
        wanted = not only or name in only
        found = benchmark(name) if wanted or "power" in only else None
        if found is None:
            if wanted:
                tell(f"no benchmark for {name} in this version; skipped")
            continue
        benchmarks[name] = found
        every = _once(found.cases(target, level))
        if wanted:
            queues.append(Queue(name, SHARES[name], [case for case in every if case.state is State.BURST]))
        power.append([case for case in every if case.state is State.SUSTAINED])
    if not only or "power" in only:
        queues.append(Queue("power", SHARES["power"], _round_robin(power)))
    return Plan(benchmarks, [queue for queue in queues if not queue.empty])


def describe(plan: Plan, budget_s: float, target: Target) -> list[str]:
    """The plan as lines of text: cases offered, how many the budget will reach, and of these how many are of which sort."""
    shares = sum(queue.share for queue in plan.queues)
    lines = [f"{'family':14} {'offered':>8} {'within budget':>14} {'time':>7}"]
    for queue in plan.queues:
        allowed_s = budget_s * queue.share / shares
        each_s = SUSTAINED_S + 0.5 if queue.name == "power" else POINT_S
        reach = min(len(queue.todo), int(allowed_s / each_s))
        lines.append(f"{queue.name:14} {len(queue.todo):8d} {reach:14d} {reach * each_s:6.0f}s")
        found = sorts.counted(queue.name, queue.todo[:reach], target)
        minutes = max(reach * each_s / 60, 1e-9)
        lines += [f"  {name:30} {count:7d} {count / minutes:6.0f} a minute" for name, count in found.items()]
    return lines


def skip_done(plan: Plan, done: dict[str, set[tuple[str, ...]]]) -> None:
    """Take out what an earlier run has measured."""
    for queue in plan.queues:
        left = [case for case in queue.todo if case.identity not in done.get(case.family, ())]
        queue.done, queue.todo = len(queue.todo) - len(left), left


def next_queue(queues: Sequence[Queue]) -> Queue | None:
    """The queue furthest behind its share of the time used, so that a kill at any moment leaves a balanced set."""
    open_queues = [queue for queue in queues if not queue.empty]
    return min(open_queues, key=lambda queue: queue.used_s / queue.share, default=None)


class Clock:
    """The time budget, across restarts."""

    def __init__(self, budget_s: float, used_s: float = 0.0) -> None:
        self.budget_s = budget_s
        self._begin = time.monotonic() - used_s

    @property
    def used_s(self) -> float:
        return time.monotonic() - self._begin

    @property
    def left_s(self) -> float:
        return self.budget_s - self.used_s


def _once(cases: Sequence[Case]) -> list[Case]:
    return list({case.identity: case for case in cases}.values())


def _round_robin(groups: Sequence[Sequence[Case]]) -> list[Case]:
    longest = max((len(group) for group in groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]
