"""CalibrationService over a store: uploads, checks, publication. Translates, calls, translates back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tilewise.hwdb.admission import Finding, publishable
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.confined import confined
from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.served import ServedDatabase
from tilewise.hwdb.store.announced import Announced
from tilewise.hwdb.store.store import DELETED_S, Entry
from tilewise.hwdb.store.uploads import Upload
from tilewise.server.deadline import check_alive
from tilewise.server.messages.gpu import calibration_message
from tilewise.server.service.resources import resource, window
from tilewise.v1 import calibration_service_pb2 as pb

REASON_MAX = 1000  # characters, as the contract says


class StoredCalibrations:
    """Takes one tenant's calibrations into a server's store, in the name of one caller."""

    def __init__(self, database: ServedDatabase, who: str = "") -> None:
        self._database, self._store, self._who = database, database.store, who

    def UploadCalibration(self, requests: Iterator[pb.UploadCalibrationRequest]) -> pb.UploadCalibrationResponse:
        first = next(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            raise InvalidInput("the first message of an upload is its header", reason="BAD_UPLOAD", field="header")
        upload = self._begin(first.header)
        for request in requests:
            if request.WhichOneof("part") != "chunk":
                raise InvalidInput("after the header come chunks alone", reason="BAD_UPLOAD", field="chunk")
            check_alive()
            upload.write(request.chunk.path, request.chunk.offset_bytes, request.chunk.data)
        answer = pb.UploadCalibrationResponse(received_bytes=upload.received())
        if upload.complete():
            calibration = upload.finish(check_alive)
            answer.calibration.CopyFrom(calibration_message(calibration, self._database.active(upload.sku)))
        return answer

    def ValidateCalibration(self, request: pb.ValidateCalibrationRequest) -> pb.ValidateCalibrationResponse:
        sku, id = _parts(request.name)
        calibration = self._database.calibration(sku, id)
        active = self._database.active(sku)
        against = self._database.calibration(sku, active) if active and active != id else None
        judged, found = self._judged(calibration, against)
        answer = pb.ValidateCalibrationResponse(publishable=publishable(found), findings=map(_finding, found))
        for family, ratio, low, high, points in judged["changes"]:
            if points:
                answer.changes.add(
                    family=family, time_ratio=ratio, time_ratio_low=low, time_ratio_high=high, point_count=points
                )
        return answer

    def PublishCalibration(self, request: pb.PublishCalibrationRequest) -> pb.PublishCalibrationResponse:
        sku, id = _parts(request.name)
        calibration = self._database.calibration(sku, id)
        errors = [finding for finding in self._judged(calibration)[1] if finding.error]
        if errors:
            message = f"{id} cannot be published: " + "; ".join(finding.message for finding in errors[:3])
            raise NotAvailable(message, reason="NOT_PUBLISHABLE", field="name")
        expected = request.expected_active if request.HasField("expected_active") else None
        previous = self._store.publish(self._database.tenant, sku, id, self._who, reason_of(request), expected)
        return pb.PublishCalibrationResponse(calibration=calibration_message(calibration, id), previous=previous or "")

    def RollbackCalibration(self, request: pb.RollbackCalibrationRequest) -> pb.RollbackCalibrationResponse:
        sku = request.parent.removeprefix("gpus/")
        name, tenant = self._database.sku(sku).name, self._database.tenant
        now, before = self._store.rollback(tenant, name, request.id or None, self._who, reason_of(request))
        calibration = self._database.calibration(sku, now)
        return pb.RollbackCalibrationResponse(calibration=calibration_message(calibration, now), previous=before)

    def DeleteCalibration(self, request: pb.DeleteCalibrationRequest) -> pb.DeleteCalibrationResponse:
        sku, id = _parts(request.name)
        self._store.delete(self._database.tenant, self._database.sku(sku).name, id, self._who, reason_of(request))
        answer = pb.DeleteCalibrationResponse()
        answer.purge_time.FromSeconds(int(time.time() + DELETED_S))
        return answer

    def ListPublications(self, request: pb.ListPublicationsRequest) -> pb.ListPublicationsResponse:
        sku = self._database.sku(resource(request.parent, "gpus/", field="parent")[0]).name
        first, last = window(request.page_size, request.page_token)
        found = self._store.newest(self._database.tenant, sku, first, last + 1)
        token = str(last) if len(found) > last - first else ""
        shown = map(_publication, found[: last - first])
        return pb.ListPublicationsResponse(publications=shown, next_page_token=token)

    def _judged(
        self, calibration: Calibration, against: Calibration | None = None
    ) -> tuple[dict[str, Any], list[Finding]]:
        """What `judged` says, and its findings; a warning among them where there was nothing to compare with."""
        folders = (
            str(self._database.folder),
            calibration.sku,
            str(calibration.folder),
            str(against.folder if against else ""),
        )
        judged = confined("tilewise.hwdb.judged:judged", *folders, alive=check_alive)
        found = [Finding(**each) for each in judged["findings"]]
        if judged["not_compared"]:
            found.append(Finding("NOT_COMPARED", judged["not_compared"], error=False))
        return judged, found

    def _begin(self, header: pb.UploadHeader) -> Upload:
        sku, id = _parts(header.name)
        files = {file.path: Announced(file.size_bytes, file.sha256) for file in header.files}
        tenant, name = self._database.tenant, self._database.sku(sku).name
        return Upload(self._store, tenant, name, id, header.content_sha256, files, self._who)


Reasoned = pb.PublishCalibrationRequest | pb.RollbackCalibrationRequest | pb.DeleteCalibrationRequest


def reason_of(request: Reasoned) -> str:
    if len(request.reason) > REASON_MAX:
        message = f"the reason has {len(request.reason)} characters; at most {REASON_MAX}"
        raise InvalidInput(message, reason="REASON_TOO_LONG", field="reason")
    return request.reason


def _parts(name: str) -> list[str]:
    """SKU and id of "gpus/{sku}/calibrations/{id}"."""
    parts = name.split("/")
    if len(parts) != 4 or parts[::2] != ["gpus", "calibrations"] or not all(parts):
        form = "gpus/{sku}/calibrations/{id}"
        raise InvalidInput(f"name {name!r} must have the form {form}", reason="BAD_RESOURCE_NAME", field="name")
    return parts[1::2]


def _publication(entry: Entry) -> pb.Publication:
    message = pb.Publication(
        id=entry.id, previous=entry.before, action=entry.action, who=entry.who, reason=entry.reason
    )
    message.time.FromSeconds(entry.at)
    return message


def _finding(finding: Finding) -> pb.CalibrationFinding:
    message = pb.CalibrationFinding(error=finding.error, code=finding.code, path=finding.path, message=finding.message)
    if finding.row:
        message.row = finding.row
    return message
