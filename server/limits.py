"""How much one request may ask for. Refused before the work begins, with the number that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tilewise.hwdb.errors import TooLarge

CANDIDATES_MAX = 1_000_000  # shapes a request may have predicted: minutes of one core, tens of MB of answers
_most: ContextVar[int] = ContextVar("candidates", default=CANDIDATES_MAX)


@contextmanager
def limited_to(candidates: int) -> Iterator[None]:
    """Within it, a request may have that many shapes predicted. For the process around the services alone."""
    token = _most.set(candidates)
    try:
        yield
    finally:
        _most.reset(token)


def most_candidates() -> int:
    """Shapes that a request may have predicted."""
    return _most.get()


def check_candidates(count: int, field: str = "") -> None:
    """Raises TooLarge (TOO_MANY_CANDIDATES) where a request would need more shapes predicted than it may.

    count: product of the ranges that the request opens, known before any is made
    field: the range to narrow, such as "ranges"
    """
    most = most_candidates()
    if count > most:
        message = f"the request needs {count:,} candidates; at most {most:,}: narrow a range or widen its step"
        raise TooLarge(message, reason="TOO_MANY_CANDIDATES", field=field, count=count, limit=most)
