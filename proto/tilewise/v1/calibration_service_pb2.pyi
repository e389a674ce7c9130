import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tilewise.v1 import gpu_pb2 as _gpu_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UploadCalibrationRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    chunk: FileChunk
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., chunk: _Optional[_Union[FileChunk, _Mapping]] = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("name", "content_sha256", "files")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    name: str
    content_sha256: str
    files: _containers.RepeatedCompositeFieldContainer[UploadFile]
    def __init__(self, name: _Optional[str] = ..., content_sha256: _Optional[str] = ..., files: _Optional[_Iterable[_Union[UploadFile, _Mapping]]] = ...) -> None: ...

class UploadFile(_message.Message):
    __slots__ = ("path", "size_bytes", "sha256")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    sha256: str
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ("path", "offset_bytes", "data")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    path: str
    offset_bytes: int
    data: bytes
    def __init__(self, path: _Optional[str] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadCalibrationResponse(_message.Message):
    __slots__ = ("calibration", "received_bytes")
    class ReceivedBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    calibration: _gpu_pb2.Calibration
    received_bytes: _containers.ScalarMap[str, int]
    def __init__(self, calibration: _Optional[_Union[_gpu_pb2.Calibration, _Mapping]] = ..., received_bytes: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ValidateCalibrationRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ValidateCalibrationResponse(_message.Message):
    __slots__ = ("publishable", "findings", "changes")
    PUBLISHABLE_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    publishable: bool
    findings: _containers.RepeatedCompositeFieldContainer[CalibrationFinding]
    changes: _containers.RepeatedCompositeFieldContainer[CalibrationChange]
    def __init__(self, publishable: bool = ..., findings: _Optional[_Iterable[_Union[CalibrationFinding, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[CalibrationChange, _Mapping]]] = ...) -> None: ...

class CalibrationFinding(_message.Message):
    __slots__ = ("error", "code", "path", "row", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: bool
    code: str
    path: str
    row: int
    message: str
    def __init__(self, error: bool = ..., code: _Optional[str] = ..., path: _Optional[str] = ..., row: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class CalibrationChange(_message.Message):
    __slots__ = ("family", "time_ratio", "time_ratio_low", "time_ratio_high", "point_count")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_LOW_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_HIGH_FIELD_NUMBER: _ClassVar[int]
    POINT_COUNT_FIELD_NUMBER: _ClassVar[int]
    family: str
    time_ratio: float
    time_ratio_low: float
    time_ratio_high: float
    point_count: int
    def __init__(self, family: _Optional[str] = ..., time_ratio: _Optional[float] = ..., time_ratio_low: _Optional[float] = ..., time_ratio_high: _Optional[float] = ..., point_count: _Optional[int] = ...) -> None: ...

class PublishCalibrationRequest(_message.Message):
    __slots__ = ("name", "expected_active", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_active: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., expected_active: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PublishCalibrationResponse(_message.Message):
    __slots__ = ("calibration", "previous")
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    calibration: _gpu_pb2.Calibration
    previous: str
    def __init__(self, calibration: _Optional[_Union[_gpu_pb2.Calibration, _Mapping]] = ..., previous: _Optional[str] = ...) -> None: ...

class RollbackCalibrationRequest(_message.Message):
    __slots__ = ("parent", "id", "reason")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    parent: str
    id: str
    reason: str
    def __init__(self, parent: _Optional[str] = ..., id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RollbackCalibrationResponse(_message.Message):
    __slots__ = ("calibration", "previous")
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    calibration: _gpu_pb2.Calibration
    previous: str
    def __init__(self, calibration: _Optional[_Union[_gpu_pb2.Calibration, _Mapping]] = ..., previous: _Optional[str] = ...) -> None: ...

class DeleteCalibrationRequest(_message.Message):
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DeleteCalibrationResponse(_message.Message):
    __slots__ = ("purge_time",)
    PURGE_TIME_FIELD_NUMBER: _ClassVar[int]
    purge_time: _timestamp_pb2.Timestamp
    def __init__(self, purge_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListPublicationsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPublicationsResponse(_message.Message):
    __slots__ = ("publications", "next_page_token")
    PUBLICATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    publications: _containers.RepeatedCompositeFieldContainer[Publication]
    next_page_token: str
    def __init__(self, publications: _Optional[_Iterable[_Union[Publication, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Publication(_message.Message):
    __slots__ = ("time", "who", "action", "id", "previous", "reason")
    TIME_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    who: str
    action: str
    id: str
    previous: str
    reason: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., who: _Optional[str] = ..., action: _Optional[str] = ..., id: _Optional[str] = ..., previous: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
