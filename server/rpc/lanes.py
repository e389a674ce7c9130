"""Threads for short calls and for long ones, so that neither waits for the other; each with a bounded queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tilewise.server.settings import Settings

RESERVE = 12  # threads beyond those at work: for callers whose message comes slowly, or who read slowly
SMOOTHING = 0.05
WAIT_MIN_S = 0.05


class Pool(ThreadPoolExecutor):
    """A thread pool that knows how many calls wait for a thread and how many have one."""

    def __init__(self, threads: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._lock, self.waiting = threading.Lock(), 0
        self.running = 0

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        with self._lock:
            self.waiting += 1
        return super().submit(self._begin, work, *arguments, **named)

    def _begin(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self._lock:
            self.waiting, self.running = self.waiting - 1, self.running + 1
        try:
            return work(*arguments, **named)
        finally:
            with self._lock:
                self.running -= 1


class Lane:
    """`at_work` calls compute at a time (more would only fight over the interpreter), `queue` wait, others come later."""

    def __init__(self, name: str, at_work: int, queue: int, limit_s: float) -> None:
        self.name, self.limit_s, self._queue, self._threads = name, limit_s, queue, at_work
        self.pool = Pool(at_work + RESERVE, name)
        self.work = threading.Semaphore(at_work)
        self._mean_s = 0.001

    def full(self) -> bool:
        return self.pool.waiting >= self._queue

    def took(self, seconds: float) -> None:
        """Learn how long calls take."""
        self._mean_s += SMOOTHING * (seconds - self._mean_s)

    def retry_after_s(self) -> float:
        """About how long the queue will take."""
        return max(self.pool.waiting * self._mean_s / self._threads, WAIT_MIN_S)


class Lanes:
    """short: Predict, Get and List; long: everything else; turned_away: to say so at once to those who must come later."""

    def __init__(self, settings: Settings) -> None:
        self.short = Lane("short", settings.threads, settings.queue, settings.short_limit_s)
        self.long = Lane("long", max(settings.threads // 2, 1), settings.queue, settings.long_limit_s)
        self.turned_away = Pool(1, "turned-away")

    def in_flight(self) -> int:
        """Calls that wait or run."""
        return sum(pool.waiting + pool.running for pool in (self.short.pool, self.long.pool, self.turned_away))

    def close(self) -> None:
        for pool in (self.short.pool, self.long.pool, self.turned_away):
            pool.shutdown(wait=False)
