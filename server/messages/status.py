"""Errors on the wire: TilewiseError to google.rpc.Status and back. Needs protobuf alone, no gRPC."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tilewise.hwdb.errors import (
    Conflict,
    Expired,
    Forbidden,
    InvalidInput,
    NotAvailable,
    NotFound,
    OutOfRange,
    Overloaded,
    TilewiseError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from tilewise.hwdb.texts import printable

DOMAIN = "tilewise"
CODES: dict[type[TilewiseError], int] = {
    TilewiseError: code_pb2.INTERNAL,  # a contradiction in our own data or counts
    InvalidInput: code_pb2.INVALID_ARGUMENT,
    NotFound: code_pb2.NOT_FOUND,
    NotAvailable: code_pb2.FAILED_PRECONDITION,
    Conflict: code_pb2.ABORTED,
    OutOfRange: code_pb2.OUT_OF_RANGE,
    TooLarge: code_pb2.RESOURCE_EXHAUSTED,
    Unimplemented: code_pb2.UNIMPLEMENTED,
    Overloaded: code_pb2.RESOURCE_EXHAUSTED,  # told from TooLarge by its RetryInfo
    Unavailable: code_pb2.UNAVAILABLE,
    Expired: code_pb2.DEADLINE_EXCEEDED,
    Unauthenticated: code_pb2.UNAUTHENTICATED,
    Forbidden: code_pb2.PERMISSION_DENIED,
}
LONGEST = 1200  # characters of a message; the list of all GPUs fits
RETRY_AFTER_S = 1.0  # where an Overloaded does not say


def to_status(error: TilewiseError) -> Status:
    """Code and message with ErrorInfo, BadRequest where a field is at fault, RetryInfo where trying again helps."""
    message = shortened(error.message)
    metadata = {key: shortened(value) for key, value in error.metadata.items()}
    details = [ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)]
    status = Status(code=CODES[type(error)], message=message, details=map(packed, details))
    if error.field:
        violation = BadRequest.FieldViolation(field=shortened(error.field), description=message)
        status.details.append(packed(BadRequest(field_violations=[violation])))
    if isinstance(error, Overloaded):
        retry = RetryInfo()
        retry.retry_delay.FromNanoseconds(int(1e9 * float(error.metadata.get("retry_after_s", RETRY_AFTER_S))))
        status.details.append(packed(retry))
    return status


def shortened(text: str) -> str:
    """In one line: statuses travel in headers of 8 KiB, and messages quote what was asked."""
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2 - 5]} ... {text[-LONGEST // 2 :]}"


def packed(detail: ErrorInfo | BadRequest | RetryInfo) -> Any:
    message = Any()
    message.Pack(detail, deterministic=True)  # a map has no order of its own
    return message


def from_status(status: Status) -> TilewiseError | None:
    """The error that to_status was given; None for a status that is not one of ours."""
    info, bad = ErrorInfo(), BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    again = any(detail.Is(RetryInfo.DESCRIPTOR) for detail in status.details)
    kinds = [kind for kind, code in CODES.items() if code == status.code and (kind is Overloaded) == again]
    if info.domain != DOMAIN or not kinds:
        return None
    error = kinds[0](
        status.message, reason=info.reason, field=bad.field_violations[0].field if bad.field_violations else ""
    )
    error.metadata = dict(info.metadata)
    return error
