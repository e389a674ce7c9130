from google.rpc import status_pb2 as _status_pb2
from tilewise.v1 import advice_pb2 as _advice_pb2
from tilewise.v1 import check_pb2 as _check_pb2
from tilewise.v1 import gpu_pb2 as _gpu_pb2
from tilewise.v1 import model_pb2 as _model_pb2
from tilewise.v1 import report_pb2 as _report_pb2
from tilewise.v1 import workload_pb2 as _workload_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Detail(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DETAIL_UNSPECIFIED: _ClassVar[Detail]
    DETAIL_STEP: _ClassVar[Detail]
    DETAIL_LAYERS: _ClassVar[Detail]
    DETAIL_OPERATORS: _ClassVar[Detail]
DETAIL_UNSPECIFIED: Detail
DETAIL_STEP: Detail
DETAIL_LAYERS: Detail
DETAIL_OPERATORS: Detail

class PredictRequest(_message.Message):
    __slots__ = ("model", "workload", "gpu", "calibration", "detail", "diagnose")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSE_FIELD_NUMBER: _ClassVar[int]
    model: _model_pb2.Model
    workload: _workload_pb2.Workload
    gpu: str
    calibration: str
    detail: Detail
    diagnose: bool
    def __init__(self, model: _Optional[_Union[_model_pb2.Model, _Mapping]] = ..., workload: _Optional[_Union[_workload_pb2.Workload, _Mapping]] = ..., gpu: _Optional[str] = ..., calibration: _Optional[str] = ..., detail: _Optional[_Union[Detail, str]] = ..., diagnose: bool = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("architecture", "workload", "gpu", "step", "layers", "operators", "memory", "summary", "database_version", "diagnosis", "rows")
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    DATABASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    architecture: _model_pb2.ModelSummary
    workload: _workload_pb2.Workload
    gpu: _gpu_pb2.Gpu
    step: _report_pb2.Step
    layers: _containers.RepeatedCompositeFieldContainer[_report_pb2.Layer]
    operators: _containers.RepeatedCompositeFieldContainer[_report_pb2.Operator]
    memory: _report_pb2.Memory
    summary: str
    database_version: str
    diagnosis: _report_pb2.Diagnosis
    rows: _containers.RepeatedCompositeFieldContainer[_report_pb2.OperatorColumn]
    def __init__(self, architecture: _Optional[_Union[_model_pb2.ModelSummary, _Mapping]] = ..., workload: _Optional[_Union[_workload_pb2.Workload, _Mapping]] = ..., gpu: _Optional[_Union[_gpu_pb2.Gpu, _Mapping]] = ..., step: _Optional[_Union[_report_pb2.Step, _Mapping]] = ..., layers: _Optional[_Iterable[_Union[_report_pb2.Layer, _Mapping]]] = ..., operators: _Optional[_Iterable[_Union[_report_pb2.Operator, _Mapping]]] = ..., memory: _Optional[_Union[_report_pb2.Memory, _Mapping]] = ..., summary: _Optional[str] = ..., database_version: _Optional[str] = ..., diagnosis: _Optional[_Union[_report_pb2.Diagnosis, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[_report_pb2.OperatorColumn, _Mapping]]] = ...) -> None: ...

class BatchPredictRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[PredictRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[PredictRequest, _Mapping]]] = ...) -> None: ...

class BatchPredictResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PredictResult]
    def __init__(self, results: _Optional[_Iterable[_Union[PredictResult, _Mapping]]] = ...) -> None: ...

class PredictResult(_message.Message):
    __slots__ = ("response", "error")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    response: PredictResponse
    error: _status_pb2.Status
    def __init__(self, response: _Optional[_Union[PredictResponse, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...
