"""Whether anybody still waits for the answer: long work asks between its parts, and stops where nobody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tilewise.hwdb.errors import Expired

_waits: ContextVar[Callable[[], bool] | None] = ContextVar("waits", default=None)


def check_alive() -> None:
    """Call it every few milliseconds of long work, such as between chunks of candidates; it costs a microsecond.

    Raises Expired where the caller's deadline has passed, the caller hung up, or the call lasts longer than the server
    lets it. Does nothing in an embedded client, where the caller is this process.
    """
    waits = _waits.get()
    if waits is not None and not waits():
        raise Expired(
            "nobody waits for the answer any more: the deadline passed or the call was cancelled", reason="EXPIRED"
        )


@contextmanager
def waited_for(waits: Callable[[], bool]) -> Iterator[None]:
    """Within it, check_alive asks `waits`. For the process around the services alone."""
    token = _waits.set(waits)
    try:
        yield
    finally:
        _waits.reset(token)
