from google.rpc import status_pb2 as _status_pb2
from tilewise.v1 import prediction_pb2 as _prediction_pb2
from tilewise.v1 import report_pb2 as _report_pb2
from tilewise.v1 import workload_pb2 as _workload_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_PASS: _ClassVar[Verdict]
    VERDICT_UNCERTAIN: _ClassVar[Verdict]
    VERDICT_FAIL: _ClassVar[Verdict]
    VERDICT_ERROR: _ClassVar[Verdict]
    VERDICT_NOT_JUDGED: _ClassVar[Verdict]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_INFO: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_ERROR: _ClassVar[Severity]
VERDICT_UNSPECIFIED: Verdict
VERDICT_PASS: Verdict
VERDICT_UNCERTAIN: Verdict
VERDICT_FAIL: Verdict
VERDICT_ERROR: Verdict
VERDICT_NOT_JUDGED: Verdict
SEVERITY_UNSPECIFIED: Severity
SEVERITY_INFO: Severity
SEVERITY_WARNING: Severity
SEVERITY_ERROR: Severity

class CheckRequest(_message.Message):
    __slots__ = ("policy_toml", "policy_path", "items", "date", "calibration", "base_policy_toml", "all_items")
    POLICY_TOML_FIELD_NUMBER: _ClassVar[int]
    POLICY_PATH_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    BASE_POLICY_TOML_FIELD_NUMBER: _ClassVar[int]
    ALL_ITEMS_FIELD_NUMBER: _ClassVar[int]
    policy_toml: str
    policy_path: str
    items: _containers.RepeatedCompositeFieldContainer[CheckItem]
    date: str
    calibration: str
    base_policy_toml: str
    all_items: bool
    def __init__(self, policy_toml: _Optional[str] = ..., policy_path: _Optional[str] = ..., items: _Optional[_Iterable[_Union[CheckItem, _Mapping]]] = ..., date: _Optional[str] = ..., calibration: _Optional[str] = ..., base_policy_toml: _Optional[str] = ..., all_items: bool = ...) -> None: ...

class CheckItem(_message.Message):
    __slots__ = ("path", "head", "base", "base_predictions")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    BASE_PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    path: str
    head: str
    base: str
    base_predictions: _containers.RepeatedCompositeFieldContainer[SavedPrediction]
    def __init__(self, path: _Optional[str] = ..., head: _Optional[str] = ..., base: _Optional[str] = ..., base_predictions: _Optional[_Iterable[_Union[SavedPrediction, _Mapping]]] = ...) -> None: ...

class SavedPrediction(_message.Message):
    __slots__ = ("gpu", "workload", "step", "memory_bytes", "parameter_count", "layers", "rows", "does_not_fit")
    GPU_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DOES_NOT_FIT_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    workload: _workload_pb2.Workload
    step: _report_pb2.Step
    memory_bytes: int
    parameter_count: int
    layers: _containers.RepeatedCompositeFieldContainer[_report_pb2.Layer]
    rows: _containers.RepeatedCompositeFieldContainer[_report_pb2.OperatorColumn]
    does_not_fit: bool
    def __init__(self, gpu: _Optional[str] = ..., workload: _Optional[_Union[_workload_pb2.Workload, _Mapping]] = ..., step: _Optional[_Union[_report_pb2.Step, _Mapping]] = ..., memory_bytes: _Optional[int] = ..., parameter_count: _Optional[int] = ..., layers: _Optional[_Iterable[_Union[_report_pb2.Layer, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[_report_pb2.OperatorColumn, _Mapping]]] = ..., does_not_fit: bool = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("verdict", "comparisons", "findings", "unchanged_paths", "database_version", "calibrations")
    class CalibrationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    COMPARISONS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_PATHS_FIELD_NUMBER: _ClassVar[int]
    DATABASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    comparisons: _containers.RepeatedCompositeFieldContainer[Comparison]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    unchanged_paths: _containers.RepeatedScalarFieldContainer[str]
    database_version: str
    calibrations: _containers.ScalarMap[str, str]
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., comparisons: _Optional[_Iterable[_Union[Comparison, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., unchanged_paths: _Optional[_Iterable[str]] = ..., database_version: _Optional[str] = ..., calibrations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Comparison(_message.Message):
    __slots__ = ("path", "gpu", "workload", "metric", "head", "base", "ratio", "ratio_low", "ratio_high", "limit", "verdict", "severity", "trust", "layers", "message", "policy_line", "error", "suppressed_by", "not_judged")
    PATH_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    RATIO_LOW_FIELD_NUMBER: _ClassVar[int]
    RATIO_HIGH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    POLICY_LINE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_BY_FIELD_NUMBER: _ClassVar[int]
    NOT_JUDGED_FIELD_NUMBER: _ClassVar[int]
    path: str
    gpu: str
    workload: str
    metric: str
    head: float
    base: float
    ratio: float
    ratio_low: float
    ratio_high: float
    limit: str
    verdict: Verdict
    severity: Severity
    trust: _prediction_pb2.Trust
    layers: _containers.RepeatedCompositeFieldContainer[LayerChange]
    message: str
    policy_line: int
    error: _status_pb2.Status
    suppressed_by: str
    not_judged: str
    def __init__(self, path: _Optional[str] = ..., gpu: _Optional[str] = ..., workload: _Optional[str] = ..., metric: _Optional[str] = ..., head: _Optional[float] = ..., base: _Optional[float] = ..., ratio: _Optional[float] = ..., ratio_low: _Optional[float] = ..., ratio_high: _Optional[float] = ..., limit: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., severity: _Optional[_Union[Severity, str]] = ..., trust: _Optional[_Union[_prediction_pb2.Trust, str]] = ..., layers: _Optional[_Iterable[_Union[LayerChange, _Mapping]]] = ..., message: _Optional[str] = ..., policy_line: _Optional[int] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., suppressed_by: _Optional[str] = ..., not_judged: _Optional[str] = ...) -> None: ...

class LayerChange(_message.Message):
    __slots__ = ("name", "base_s", "head_s", "wall")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BASE_S_FIELD_NUMBER: _ClassVar[int]
    HEAD_S_FIELD_NUMBER: _ClassVar[int]
    WALL_FIELD_NUMBER: _ClassVar[int]
    name: str
    base_s: float
    head_s: float
    wall: _prediction_pb2.Wall
    def __init__(self, name: _Optional[str] = ..., base_s: _Optional[float] = ..., head_s: _Optional[float] = ..., wall: _Optional[_Union[_prediction_pb2.Wall, str]] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("code", "severity", "path", "line", "column", "field", "message", "fix", "suppressed_by")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIX_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_BY_FIELD_NUMBER: _ClassVar[int]
    code: str
    severity: Severity
    path: str
    line: int
    column: int
    field: str
    message: str
    fix: str
    suppressed_by: str
    def __init__(self, code: _Optional[str] = ..., severity: _Optional[_Union[Severity, str]] = ..., path: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., field: _Optional[str] = ..., message: _Optional[str] = ..., fix: _Optional[str] = ..., suppressed_by: _Optional[str] = ...) -> None: ...
