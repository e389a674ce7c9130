"""Turns: who computes next, and how much of a lane one caller may hold, so that nobody waits for somebody else's crowd."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Waiting:
    who: str
    given: threading.Event = field(default_factory=threading.Event)


class Turns:
    """`at_work` callers compute at a time; the next is the one with the fewest at work, among equals who came first.

    share: the largest part of the turns, and of `places`, that one caller holds; one of each at least
    """

    def __init__(self, at_work: int, places: int, share: float) -> None:
        self._free = at_work
        self.most_turns, self.most_places = max(1, int(share * at_work)), max(1, int(share * places))
        self._lock = threading.Lock()
        self._placed: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []

    def enter(self, who: str) -> bool:
        """Take a place, to be left again; False where the caller holds as many as one may."""
        with self._lock:
            fits = self._placed[who] < self.most_places
            self._placed[who] += fits
        return fits

    def leave(self, who: str) -> None:
        with self._lock:
            self._placed[who] -= 1

    @contextmanager
    def turn(self, who: str) -> Iterator[None]:
        """Waits for a turn, and has it within."""
        waiting = _Waiting(who)
        with self._lock:
            self._waiting.append(waiting)
            self._give()
        waiting.given.wait()
        try:
            yield
        finally:
            with self._lock:
                self._working[who] -= 1
                self._free += 1
                self._give()

    def _give(self) -> None:
        """Give out what is free. Within the lock."""
        while self._free:
            allowed = [each for each in self._waiting if self._working[each.who] < self.most_turns]
            if not allowed:
                return
            chosen = min(allowed, key=lambda each: self._working[each.who])
            self._waiting.remove(chosen)
            self._working[chosen.who] += 1
            self._free -= 1
            chosen.given.set()
