"""Hand a calibration to a server: upload what it lacks, have it checked, and make it answer if asked to."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any, cast

from google.protobuf.message import Message

from tilewise.client.remote import Remote, ServerError
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import NotAvailable, Overloaded, TilewiseError, Unavailable
from tilewise.v1 import calibration_service_pb2 as pb

CHUNK_BYTES = 256 * 1024
SERVICE = "CalibrationService"
TRIES = 6
PAUSE_S = 0.2  # doubled after each try


def publish(calibration: Calibration, server: str, *, promote: bool, reason: str = "") -> Iterator[str]:
    """Yields a line for each thing done. Raises NotAvailable where the server's checks forbid what was asked."""
    calibration.measured()
    remote = Remote(server)
    try:
        name = f"gpus/{calibration.sku}/calibrations/{calibration.id}"
        _upload(remote, calibration, name)
        yield f"uploaded {name}"
        checked = cast(
            pb.ValidateCalibrationResponse,
            remote(SERVICE, "ValidateCalibration", pb.ValidateCalibrationRequest(name=name)),
        )
        for finding in checked.findings:
            yield f"{'error' if finding.error else 'warning'} {finding.code}: {finding.message}"
        for change in checked.changes:
            interval = f"{change.time_ratio_low:.4f} to {change.time_ratio_high:.4f}"
            yield f"{change.family}: {change.time_ratio:.4f} times the active calibration's time ({interval})"
        if not checked.publishable:
            raise NotAvailable(f"{name} is uploaded but must not answer", reason="NOT_PUBLISHABLE")
        if promote:
            remote(SERVICE, "PublishCalibration", pb.PublishCalibrationRequest(name=name, reason=reason))
            yield f"{name} answers now"
        else:
            yield f"{name} is a candidate; --promote makes it answer"
    finally:
        remote.close()


def rollback(sku: str, server: str, id: str, reason: str) -> str:
    """Make an earlier calibration answer again; the line that says which. Raises as the service does."""
    request = pb.RollbackCalibrationRequest(parent=f"gpus/{sku}", id=id, reason=reason)
    answer = cast(pb.RollbackCalibrationResponse, _ask(server, "RollbackCalibration", request))
    return f"{answer.calibration.id} answers again for {sku}, in place of {answer.previous}"


def delete(sku: str, id: str, server: str, reason: str) -> str:
    """Take a calibration away; the line that says until when its files stay. Raises as the service does."""
    request = pb.DeleteCalibrationRequest(name=f"gpus/{sku}/calibrations/{id}", reason=reason)
    answer = cast(pb.DeleteCalibrationResponse, _ask(server, "DeleteCalibration", request))
    return f"{id} is gone from {sku}; its files are purged on {answer.purge_time.ToDatetime():%Y-%m-%d}"


def publications(sku: str, server: str) -> pb.ListPublicationsResponse:
    """The audit log of a SKU's calibrations, the newest first."""
    request = pb.ListPublicationsRequest(parent=f"gpus/{sku}", page_size=1000)
    return cast(pb.ListPublicationsResponse, _ask(server, "ListPublications", request))


def _ask(server: str, method: str, request: Message) -> Message:
    remote = Remote(server)
    try:
        return remote(SERVICE, method, request)
    finally:
        remote.close()


def _upload(remote: Remote, calibration: Calibration, name: str) -> None:
    """Until it is there whole: after a break it goes on where it stopped, at whichever replica."""
    for attempt in range(TRIES):
        try:
            begun = _send(remote, iter([_header(calibration, name)]))
            if not begun.HasField("calibration"):
                _send(remote, _messages(calibration, name, dict(begun.received_bytes)))
            return
        except TilewiseError as error:
            passing = (
                isinstance(error, Overloaded | Unavailable)
                or error.reason == "UPLOAD_RESTARTED"
                or (isinstance(error, ServerError) and error.reason == "UNAVAILABLE")
            )
            if not passing or attempt == TRIES - 1:
                raise
            time.sleep(PAUSE_S * 2**attempt)


def _send(remote: Remote, messages: Iterator[pb.UploadCalibrationRequest]) -> pb.UploadCalibrationResponse:
    return cast(pb.UploadCalibrationResponse, remote(SERVICE, "UploadCalibration", cast(Any, messages)))


def _header(calibration: Calibration, name: str) -> pb.UploadCalibrationRequest:
    files = []
    for path in calibration.files():
        content = (calibration.folder / path).read_bytes()
        files.append(pb.UploadFile(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()))
    header = pb.UploadHeader(name=name, content_sha256=calibration.content_sha256(), files=files)
    return pb.UploadCalibrationRequest(header=header)


def _messages(calibration: Calibration, name: str, have: dict[str, int]) -> Iterator[pb.UploadCalibrationRequest]:
    """The header again, then what the server does not have yet."""
    yield _header(calibration, name)
    for path in calibration.files():
        content = (calibration.folder / path).read_bytes()
        for offset in range(have.get(path, 0), len(content), CHUNK_BYTES):
            data = content[offset : offset + CHUNK_BYTES]
            yield pb.UploadCalibrationRequest(chunk=pb.FileChunk(path=path, offset_bytes=offset, data=data))
