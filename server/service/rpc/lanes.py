"""Threads for short calls, for long ones and for those without a token, so that none waits for the others; each lane is bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tilewise.hwdb.errors import Overloaded
from tilewise.server.service.identity.caller import Caller
from tilewise.server.service.rpc.turns import Turns
from tilewise.server.service.settings import Settings

RESERVE = 12  # places beyond those at work and in the queue: for callers whose message comes slowly, or who read slowly
SMOOTHING = 0.05
WAIT_MIN_S = 0.05
OPEN_PLACES, OPEN_LIMIT_S = 16, 10.0  # probes and reflection take a moment
WATCH_PLACES = 64  # who watches health holds a thread for as long
OPEN_SHARE = 0.5  # of both, for one host


class Pool(ThreadPoolExecutor):
    """A thread pool that knows how many calls it has."""

    def __init__(self, threads: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._lock, self.inside = threading.Lock(), 0

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        self._count(1)
        return super().submit(self._run, work, *arguments, **named)

    def _run(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return work(*arguments, **named)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self.inside += change


class Lane:
    """`at_work` calls compute at a time (more would only fight over the interpreter), others wait for their turn in one of
    `places`, and still others come later. A call that waits holds a thread, and is known by its caller: see Turns for what one caller may hold.
    """

    def __init__(self, name: str, at_work: int, places: int, limit_s: float, share: float) -> None:
        self.name, self.limit_s, self._at_work, self.places = name, limit_s, at_work, places
        self.pool = Pool(self.places, name)
        self._turns = Turns(at_work, self.places, share)
        self._mean_s = 0.001

    def full(self) -> bool:
        return self.pool.inside >= self.places

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """A caller's place from its identification to its end. Raises Overloaded (OVER_QUOTA)."""
        held = self._turns.enter(caller.group)
        if held:
            wait_s = self.retry_after_s()
            message = (
                f"{caller.group} has {held} {self.name} calls here already, of {self.places} that this server takes from"
                f" everybody together; try again in {wait_s:.2g} s"
            )
            raise Overloaded(message, reason="OVER_QUOTA", retry_after_s=f"{wait_s:.3f}", limit=held)
        try:
            yield
        finally:
            self._turns.leave(caller.group)

    def crowds(self, caller: Caller) -> bool:
        """Whether a caller has more here than all others together, and than may compute at a time."""
        return self._turns.crowds(caller.group)

    def turn(self, caller: Caller) -> Any:
        """A context manager: computing."""
        return self._turns.turn(caller.group)

    def give_way(self, caller: Caller) -> None:
        """Within a turn: let others go first."""
        self._turns.give_way(caller.group)

    def took(self, seconds: float) -> None:
        """Learn how long calls take."""
        self._mean_s += SMOOTHING * (seconds - self._mean_s)

    def retry_after_s(self) -> float:
        """About how long those who are here will take."""
        return max(self.pool.inside * self._mean_s / self._at_work, WAIT_MIN_S)


class Lanes:
    """short: Predict, Get and List; long: everything else of the contract; open: health and reflection; watch: who watches health;
    turned_away: to say so at once to those who must come later."""

    def __init__(self, settings: Settings) -> None:
        share = settings.caller_share if settings.tokens or not settings.loopback else 1.0  # on loopback all are one
        extra, long_threads = settings.queue + RESERVE, max(settings.threads // 2, 1)
        short_s, long_s = settings.short_limit_s, settings.long_limit_s
        self.by_name = {
            lane.name: lane
            for lane in (
                Lane("short", settings.threads, settings.threads + extra, short_s, share),
                Lane("long", long_threads, long_threads + extra, long_s, share),
                Lane("open", OPEN_PLACES, OPEN_PLACES, OPEN_LIMIT_S, OPEN_SHARE),
                Lane("watch", WATCH_PLACES, WATCH_PLACES, long_s, OPEN_SHARE),
            )
        }
        self.turned_away = Pool(1, "turned-away")

    def in_flight(self) -> int:
        """Calls of the contract that wait or run."""
        return sum(self.by_name[name].pool.inside for name in ("short", "long")) + self.turned_away.inside

    def close(self) -> None:
        for pool in (*(lane.pool for lane in self.by_name.values()), self.turned_away):
            pool.shutdown(wait=False)
