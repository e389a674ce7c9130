from tilewise.v1 import gpu_pb2 as _gpu_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListGpusRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGpusResponse(_message.Message):
    __slots__ = ("gpus", "next_page_token", "database_version")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DATABASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    gpus: _containers.RepeatedCompositeFieldContainer[_gpu_pb2.Gpu]
    next_page_token: str
    database_version: str
    def __init__(self, gpus: _Optional[_Iterable[_Union[_gpu_pb2.Gpu, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., database_version: _Optional[str] = ...) -> None: ...

class GetGpuRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetGpuResponse(_message.Message):
    __slots__ = ("gpu", "database_version")
    GPU_FIELD_NUMBER: _ClassVar[int]
    DATABASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    gpu: _gpu_pb2.Gpu
    database_version: str
    def __init__(self, gpu: _Optional[_Union[_gpu_pb2.Gpu, _Mapping]] = ..., database_version: _Optional[str] = ...) -> None: ...

class ListCalibrationsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCalibrationsResponse(_message.Message):
    __slots__ = ("calibrations", "next_page_token")
    CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    calibrations: _containers.RepeatedCompositeFieldContainer[_gpu_pb2.Calibration]
    next_page_token: str
    def __init__(self, calibrations: _Optional[_Iterable[_Union[_gpu_pb2.Calibration, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetCalibrationRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetCalibrationResponse(_message.Message):
    __slots__ = ("calibration",)
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    calibration: _gpu_pb2.Calibration
    def __init__(self, calibration: _Optional[_Union[_gpu_pb2.Calibration, _Mapping]] = ...) -> None: ...
