"""How much one request may ask for. Refused before the work begins, with the number that was asked for."""

from __future__ import annotations

from tilewise.hwdb.errors import TooLarge

CANDIDATES_MAX = 1_000_000  # shapes a request may have predicted: minutes of one core, tens of MB of answers


def check_candidates(count: int, field: str = "") -> None:
    """Raises TooLarge (TOO_MANY_CANDIDATES) where a request would need more than CANDIDATES_MAX shapes predicted.

    count: product of the ranges that the request opens, known before any is made
    field: the range to narrow, such as "ranges"
    """
    if count > CANDIDATES_MAX:
        message = (
            f"the request needs {count:,} candidates; at most {CANDIDATES_MAX:,}: narrow a range or widen its step"
        )
        raise TooLarge(message, reason="TOO_MANY_CANDIDATES", field=field, count=count, limit=CANDIDATES_MAX)
