"""Turns: who computes next, and how much of a lane one caller may hold, so that nobody waits for somebody else's crowd."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LONGEST_S = 0.25  # that one who gave way waits


@dataclass(slots=True, eq=False)
class _Waiting:
    who: str
    given: threading.Event = field(default_factory=threading.Event)


class Turns:
    """`at_work` callers compute at a time; the next is the one with the fewest at work, among equals who came first.

    share: the largest part of the turns, and of `places`, that one caller holds alone; one of each at least. Of places each
    caller may hold share / (1 - share) times what is free, so that however many hold as many as they may, some stay free for
    whoever comes next; an eighth is for callers who hold none.
    """

    def __init__(self, at_work: int, places: int, share: float) -> None:
        self._free, self._places = at_work, places
        self.most_turns = max(1, int(share * at_work))
        self._ratio = share / (1 - share) if share < 1 else math.inf
        self._lock = threading.Lock()
        self._placed: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []

    def enter(self, who: str) -> int:
        """Take a place, to be left again: 0; else how many the caller holds already, which is as many as one may now."""
        with self._lock:
            held, total = self._placed[who], self._placed.total()
            kept = self._places // 8 if total > held and self._ratio < math.inf else 0
            room = self._places - total - kept
            if held and (room <= 0 or held >= self._ratio * room):
                return held
            self._placed[who] += 1
        return 0

    def leave(self, who: str) -> None:
        with self._lock:
            self._placed[who] -= 1
            if not self._placed[who]:
                del self._placed[who]

    def crowds(self, who: str) -> bool:
        """Whether a caller has more here than all others together, and than may compute at a time."""
        with self._lock:
            others = self._placed.total() - self._placed[who]
            return 0 < others < self._placed[who] and self._placed[who] > self.most_turns

    @contextmanager
    def turn(self, who: str) -> Iterator[None]:
        """Waits for a turn, and has it within."""
        self._take(who)
        try:
            yield
        finally:
            with self._lock:
                self._put_back(who)

    def give_way(self, who: str) -> None:
        """Within a turn: lets those go first who have fewer at work, and waits for the next turn; at once where none waits."""
        with self._lock:
            if not any(self._working[each.who] < self._working[who] for each in self._waiting):
                return
            self._put_back(who)
        self._take(who, LONGEST_S)

    def _take(self, who: str, longest_s: float | None = None) -> None:
        """longest_s: then it goes on all the same: it may hold a lock (of a cached property, until Python 3.12) for which
        whoever has the turn waits."""
        waiting = _Waiting(who)
        with self._lock:
            self._waiting.append(waiting)
            self._give()
        if waiting.given.wait(longest_s):
            return
        with self._lock:
            if not waiting.given.is_set():
                self._waiting.remove(waiting)
                self._working[who] += 1
                self._free -= 1

    def _put_back(self, who: str) -> None:
        """Within the lock."""
        self._working[who] -= 1
        if not self._working[who]:
            del self._working[who]
        self._free += 1
        self._give()

    def _give(self) -> None:
        """Give out what is free. Within the lock."""
        while self._free > 0:
            allowed = [each for each in self._waiting if self._working[each.who] < self.most_turns]
            if not allowed:
                return
            chosen = min(allowed, key=lambda each: self._working[each.who])
            self._waiting.remove(chosen)
            self._working[chosen.who] += 1
            self._free -= 1
            chosen.given.set()
