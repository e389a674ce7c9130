"""Errors on the wire: TilewiseError to google.rpc.Status and back. Needs protobuf alone, no gRPC."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from tilewise.hwdb.errors import (
    Conflict,
    InvalidInput,
    NotAvailable,
    NotFound,
    OutOfRange,
    TilewiseError,
    TooLarge,
    Unimplemented,
)

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
}


def to_status(error: TilewiseError) -> Status:
    """Code and message with ErrorInfo, and with BadRequest where a field is at fault."""
    details = [ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)]
    status = Status(code=CODES[type(error)], message=error.message, details=map(packed, details))
    if error.field:
        violation = BadRequest.FieldViolation(field=error.field, description=error.message)
        status.details.append(packed(BadRequest(field_violations=[violation])))
    return status


def packed(detail: ErrorInfo | BadRequest) -> Any:
    message = Any()
    message.Pack(detail)
    return message


def from_status(status: Status) -> TilewiseError | None:
    """The error that to_status was given; None for a status that is not one of ours."""
    info, bad = ErrorInfo(), BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    kinds = [kind for kind, code in CODES.items() if code == status.code]
    if info.domain != DOMAIN or not kinds:
        return None
    error = kinds[0](
        status.message, reason=info.reason, field=bad.field_violations[0].field if bad.field_violations else ""
    )
    error.metadata = dict(info.metadata)
    return error
