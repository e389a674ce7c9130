from google.protobuf import struct_pb2 as _struct_pb2
from tilewise.v1 import prediction_pb2 as _prediction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CalibrationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALIBRATION_STATE_UNSPECIFIED: _ClassVar[CalibrationState]
    CALIBRATION_STATE_CANDIDATE: _ClassVar[CalibrationState]
    CALIBRATION_STATE_ACTIVE: _ClassVar[CalibrationState]
    CALIBRATION_STATE_RETIRED: _ClassVar[CalibrationState]
CALIBRATION_STATE_UNSPECIFIED: CalibrationState
CALIBRATION_STATE_CANDIDATE: CalibrationState
CALIBRATION_STATE_ACTIVE: CalibrationState
CALIBRATION_STATE_RETIRED: CalibrationState

class Gpu(_message.Message):
    __slots__ = ("name", "sku", "title", "vendor", "generation", "multiprocessor_count", "memory_bytes", "memory_bandwidth_bytes_per_s", "power_w", "calibration", "peaks", "ceilings", "facts", "aliases", "notes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SKU_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MULTIPROCESSOR_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BANDWIDTH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    PEAKS_FIELD_NUMBER: _ClassVar[int]
    CEILINGS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    sku: str
    title: str
    vendor: str
    generation: str
    multiprocessor_count: int
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    power_w: float
    calibration: str
    peaks: _containers.RepeatedCompositeFieldContainer[_prediction_pb2.Peak]
    ceilings: _containers.RepeatedCompositeFieldContainer[Ceiling]
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    aliases: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., sku: _Optional[str] = ..., title: _Optional[str] = ..., vendor: _Optional[str] = ..., generation: _Optional[str] = ..., multiprocessor_count: _Optional[int] = ..., memory_bytes: _Optional[float] = ..., memory_bandwidth_bytes_per_s: _Optional[float] = ..., power_w: _Optional[float] = ..., calibration: _Optional[str] = ..., peaks: _Optional[_Iterable[_Union[_prediction_pb2.Peak, _Mapping]]] = ..., ceilings: _Optional[_Iterable[_Union[Ceiling, _Mapping]]] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ..., aliases: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("name", "value", "source", "mark")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    mark: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., mark: _Optional[str] = ...) -> None: ...

class Ceiling(_message.Message):
    __slots__ = ("name", "value", "source", "mark", "trust")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    source: str
    mark: str
    trust: _prediction_pb2.Trust
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., source: _Optional[str] = ..., mark: _Optional[str] = ..., trust: _Optional[_Union[_prediction_pb2.Trust, str]] = ...) -> None: ...

class Calibration(_message.Message):
    __slots__ = ("name", "sku", "id", "state", "trust", "production", "content_sha256", "held_out_errors", "card")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SKU_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    PRODUCTION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_ERRORS_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    name: str
    sku: str
    id: str
    state: CalibrationState
    trust: _prediction_pb2.Trust
    production: bool
    content_sha256: str
    held_out_errors: _containers.RepeatedCompositeFieldContainer[HeldOutError]
    card: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., sku: _Optional[str] = ..., id: _Optional[str] = ..., state: _Optional[_Union[CalibrationState, str]] = ..., trust: _Optional[_Union[_prediction_pb2.Trust, str]] = ..., production: bool = ..., content_sha256: _Optional[str] = ..., held_out_errors: _Optional[_Iterable[_Union[HeldOutError, _Mapping]]] = ..., card: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class HeldOutError(_message.Message):
    __slots__ = ("family", "group", "point_count", "refused_count", "mean_absolute_error", "p90_absolute_error", "bias", "interval_coverage")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POINT_COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_ABSOLUTE_ERROR_FIELD_NUMBER: _ClassVar[int]
    P90_ABSOLUTE_ERROR_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    family: str
    group: str
    point_count: int
    refused_count: int
    mean_absolute_error: float
    p90_absolute_error: float
    bias: float
    interval_coverage: float
    def __init__(self, family: _Optional[str] = ..., group: _Optional[str] = ..., point_count: _Optional[int] = ..., refused_count: _Optional[int] = ..., mean_absolute_error: _Optional[float] = ..., p90_absolute_error: _Optional[float] = ..., bias: _Optional[float] = ..., interval_coverage: _Optional[float] = ...) -> None: ...
