"""The one exception family of hwdb and server.

    TilewiseError
    ├── InvalidInput          what was asked makes no sense           -> INVALID_ARGUMENT
    ├── NotFound              the name is not known                   -> NOT_FOUND
    ├── NotAvailable          known, but not on this GPU or database  -> FAILED_PRECONDITION
    ├── Conflict              the state is no longer what the caller believed   -> ABORTED
    ├── OutOfRange            beyond what was measured                -> OUT_OF_RANGE
    ├── TooLarge              a limit of the service                  -> RESOURCE_EXHAUSTED
    ├── Overloaded            too much at once; worth another try     -> RESOURCE_EXHAUSTED with RetryInfo
    ├── Unavailable           something behind the service is gone    -> UNAVAILABLE
    ├── Expired               nobody waits for the answer any more    -> DEADLINE_EXCEEDED
    ├── Unauthenticated       who asks is not known                   -> UNAUTHENTICATED
    ├── Forbidden             who asks is known and may not           -> PERMISSION_DENIED
    └── Unimplemented         part of the contract, not built yet     -> UNIMPLEMENTED

A message is one line: what was wrong; what is allowed; the nearest valid choice.
"""

from __future__ import annotations

from collections.abc import Iterable


class TilewiseError(Exception):
    """Base of every error a user can cause and mend.

    reason:   stable UPPER_SNAKE code (`explain CODE` tells more)
    field:    path of the offending field in the request, such as "workload.tensor_parallel"; "" where none applies
    metadata: every varying part of the message, as text
    """

    def __init__(self, message: str, *, reason: str, field: str = "", **metadata: object) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.field = field
        self.metadata = {key: str(value) for key, value in metadata.items()}


class InvalidInput(TilewiseError):
    """The question is malformed or impossible whatever the GPU."""


class NotFound(TilewiseError):
    """No GPU, calibration, model or code of that name."""


class NotAvailable(TilewiseError):
    """The GPU is known, but not for this precision or operator."""


class OutOfRange(TilewiseError):
    """The shape lies too far from every measurement to be answered."""


class TooLarge(TilewiseError):
    """The request exceeds a limit of the service."""


class Unimplemented(TilewiseError):
    """The contract has this method, but this version does not answer it yet."""


class Conflict(TilewiseError):
    """What the caller believed to be so has changed; look again and ask again."""


class Overloaded(TilewiseError):
    """The service has more to do than it takes on. metadata["retry_after_s"]: when to ask again."""


class Unavailable(TilewiseError):
    """What the service needs for this cannot be reached for now, such as its database."""


class Expired(TilewiseError):
    """The caller's deadline has passed, or the caller hung up."""


class Unauthenticated(TilewiseError):
    """The request names nobody whom the service knows."""


class Forbidden(TilewiseError):
    """The caller's role does not allow what was asked."""


def unknown(what: str, value: object, allowed: Iterable[str]) -> str:
    """The line on a word that nobody knows: what is allowed, and the nearest of it."""
    return f"{what} {value!r} is not known: {choice(value, allowed)}"


def choice(value: object, allowed: Iterable[str]) -> str:
    """What is allowed, and the nearest of it."""
    from difflib import get_close_matches

    near = get_close_matches(str(value), allowed := list(allowed), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"allowed are {', '.join(allowed)}{hint}"
