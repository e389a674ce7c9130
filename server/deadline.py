"""Whether anybody still waits for the answer: long work asks between its parts, and stops where nobody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_look: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


def check_alive() -> None:
    """Call it every few milliseconds of long work, such as between chunks of candidates; it costs a microsecond.

    Raises Expired where the caller's deadline has passed, the caller hung up, or the call lasts longer than the server
    lets it, and Unauthenticated where its token was withdrawn. Does nothing in an embedded client, where the caller is this process.
    """
    look = _look.get()
    if look is not None:
        look()


@contextmanager
def waited_for(look: Callable[[], None]) -> Iterator[None]:
    """Within it, check_alive calls `look`, which raises where work is to end. For the process around the services alone."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)
