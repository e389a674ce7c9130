from google.rpc import status_pb2 as _status_pb2
from tilewise.v1 import model_pb2 as _model_pb2
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

class Objective(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECTIVE_UNSPECIFIED: _ClassVar[Objective]
    OBJECTIVE_TIME: _ClassVar[Objective]
    OBJECTIVE_ENERGY: _ClassVar[Objective]

class AdviceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADVICE_KIND_UNSPECIFIED: _ClassVar[AdviceKind]
    ADVICE_KIND_EXECUTION: _ClassVar[AdviceKind]
    ADVICE_KIND_FREE_WIN: _ClassVar[AdviceKind]
    ADVICE_KIND_RESHAPE: _ClassVar[AdviceKind]
    ADVICE_KIND_PRECISION: _ClassVar[AdviceKind]

class GainVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAIN_VERDICT_UNSPECIFIED: _ClassVar[GainVerdict]
    GAIN_VERDICT_FASTER: _ClassVar[GainVerdict]
    GAIN_VERDICT_CANNOT_TELL: _ClassVar[GainVerdict]
    GAIN_VERDICT_SLOWER: _ClassVar[GainVerdict]
OBJECTIVE_UNSPECIFIED: Objective
OBJECTIVE_TIME: Objective
OBJECTIVE_ENERGY: Objective
ADVICE_KIND_UNSPECIFIED: AdviceKind
ADVICE_KIND_EXECUTION: AdviceKind
ADVICE_KIND_FREE_WIN: AdviceKind
ADVICE_KIND_RESHAPE: AdviceKind
ADVICE_KIND_PRECISION: AdviceKind
GAIN_VERDICT_UNSPECIFIED: GainVerdict
GAIN_VERDICT_FASTER: GainVerdict
GAIN_VERDICT_CANNOT_TELL: GainVerdict
GAIN_VERDICT_SLOWER: GainVerdict

class SweepRequest(_message.Message):
    __slots__ = ("model", "workload", "gpus", "axes")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    model: _model_pb2.Model
    workload: _workload_pb2.Workload
    gpus: _containers.RepeatedScalarFieldContainer[str]
    axes: _containers.RepeatedCompositeFieldContainer[Axis]
    def __init__(self, model: _Optional[_Union[_model_pb2.Model, _Mapping]] = ..., workload: _Optional[_Union[_workload_pb2.Workload, _Mapping]] = ..., gpus: _Optional[_Iterable[str]] = ..., axes: _Optional[_Iterable[_Union[Axis, _Mapping]]] = ...) -> None: ...

class Axis(_message.Message):
    __slots__ = ("field", "values", "range")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    field: str
    values: _containers.RepeatedScalarFieldContainer[int]
    range: Range
    def __init__(self, field: _Optional[str] = ..., values: _Optional[_Iterable[int]] = ..., range: _Optional[_Union[Range, _Mapping]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "last", "step")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    step: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class SweepResponse(_message.Message):
    __slots__ = ("progress", "points", "cliffs", "database_version")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    CLIFFS_FIELD_NUMBER: _ClassVar[int]
    DATABASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    progress: _prediction_pb2.Progress
    points: _containers.RepeatedCompositeFieldContainer[SweepPoint]
    cliffs: _containers.RepeatedCompositeFieldContainer[Cliff]
    database_version: str
    def __init__(self, progress: _Optional[_Union[_prediction_pb2.Progress, _Mapping]] = ..., points: _Optional[_Iterable[_Union[SweepPoint, _Mapping]]] = ..., cliffs: _Optional[_Iterable[_Union[Cliff, _Mapping]]] = ..., database_version: _Optional[str] = ...) -> None: ...

class SweepPoint(_message.Message):
    __slots__ = ("values", "gpu", "prediction", "mfu", "tokens_per_s", "parameter_count", "memory_bytes", "error", "fits")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    MFU_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    gpu: str
    prediction: _prediction_pb2.Prediction
    mfu: float
    tokens_per_s: float
    parameter_count: int
    memory_bytes: int
    error: _status_pb2.Status
    fits: bool
    def __init__(self, values: _Optional[_Iterable[int]] = ..., gpu: _Optional[str] = ..., prediction: _Optional[_Union[_prediction_pb2.Prediction, _Mapping]] = ..., mfu: _Optional[float] = ..., tokens_per_s: _Optional[float] = ..., parameter_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., fits: bool = ...) -> None: ...

class Cliff(_message.Message):
    __slots__ = ("field", "gpu", "good_value", "bad_value", "time_ratio", "cause", "message")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    GOOD_VALUE_FIELD_NUMBER: _ClassVar[int]
    BAD_VALUE_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    field: str
    gpu: str
    good_value: int
    bad_value: int
    time_ratio: float
    cause: str
    message: str
    def __init__(self, field: _Optional[str] = ..., gpu: _Optional[str] = ..., good_value: _Optional[int] = ..., bad_value: _Optional[int] = ..., time_ratio: _Optional[float] = ..., cause: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class RecommendRequest(_message.Message):
    __slots__ = ("model", "workloads", "gpus", "objective", "neighbourhood", "kinds", "max_results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURHOOD_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: _model_pb2.Model
    workloads: _containers.RepeatedCompositeFieldContainer[WeightedWorkload]
    gpus: _containers.RepeatedScalarFieldContainer[str]
    objective: Objective
    neighbourhood: Neighbourhood
    kinds: _containers.RepeatedScalarFieldContainer[AdviceKind]
    max_results: int
    def __init__(self, model: _Optional[_Union[_model_pb2.Model, _Mapping]] = ..., workloads: _Optional[_Iterable[_Union[WeightedWorkload, _Mapping]]] = ..., gpus: _Optional[_Iterable[str]] = ..., objective: _Optional[_Union[Objective, str]] = ..., neighbourhood: _Optional[_Union[Neighbourhood, _Mapping]] = ..., kinds: _Optional[_Iterable[_Union[AdviceKind, str]]] = ..., max_results: _Optional[int] = ...) -> None: ...

class WeightedWorkload(_message.Message):
    __slots__ = ("workload", "weight")
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    workload: _workload_pb2.Workload
    weight: float
    def __init__(self, workload: _Optional[_Union[_workload_pb2.Workload, _Mapping]] = ..., weight: _Optional[float] = ...) -> None: ...

class Neighbourhood(_message.Message):
    __slots__ = ("max_parameter_change", "vary", "keep", "tensor_parallel", "precisions", "max_memory_bytes", "max_candidate_count")
    MAX_PARAMETER_CHANGE_FIELD_NUMBER: _ClassVar[int]
    VARY_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    PRECISIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CANDIDATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    max_parameter_change: float
    vary: _containers.RepeatedScalarFieldContainer[str]
    keep: _containers.RepeatedScalarFieldContainer[str]
    tensor_parallel: _containers.RepeatedScalarFieldContainer[int]
    precisions: _containers.RepeatedScalarFieldContainer[_workload_pb2.Precision]
    max_memory_bytes: int
    max_candidate_count: int
    def __init__(self, max_parameter_change: _Optional[float] = ..., vary: _Optional[_Iterable[str]] = ..., keep: _Optional[_Iterable[str]] = ..., tensor_parallel: _Optional[_Iterable[int]] = ..., precisions: _Optional[_Iterable[_Union[_workload_pb2.Precision, str]]] = ..., max_memory_bytes: _Optional[int] = ..., max_candidate_count: _Optional[int] = ...) -> None: ...

class RecommendResponse(_message.Message):
    __slots__ = ("progress", "baseline", "recommendations", "summary", "candidate_count", "database_version", "notes")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATIONS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DATABASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    progress: _prediction_pb2.Progress
    baseline: _containers.RepeatedCompositeFieldContainer[Baseline]
    recommendations: _containers.RepeatedCompositeFieldContainer[Recommendation]
    summary: str
    candidate_count: int
    database_version: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, progress: _Optional[_Union[_prediction_pb2.Progress, _Mapping]] = ..., baseline: _Optional[_Iterable[_Union[Baseline, _Mapping]]] = ..., recommendations: _Optional[_Iterable[_Union[Recommendation, _Mapping]]] = ..., summary: _Optional[str] = ..., candidate_count: _Optional[int] = ..., database_version: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class Baseline(_message.Message):
    __slots__ = ("gpu", "workload", "step", "memory")
    GPU_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    workload: int
    step: _report_pb2.Step
    memory: _report_pb2.Memory
    def __init__(self, gpu: _Optional[str] = ..., workload: _Optional[int] = ..., step: _Optional[_Union[_report_pb2.Step, _Mapping]] = ..., memory: _Optional[_Union[_report_pb2.Memory, _Mapping]] = ...) -> None: ...

class Recommendation(_message.Message):
    __slots__ = ("kind", "changes", "verdict", "effects", "parameter_count_change", "memory_bytes_change", "cause", "message", "total_ratio", "total_ratio_low", "total_ratio_high")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_CHANGE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_CHANGE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RATIO_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RATIO_LOW_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RATIO_HIGH_FIELD_NUMBER: _ClassVar[int]
    kind: AdviceKind
    changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    verdict: GainVerdict
    effects: _containers.RepeatedCompositeFieldContainer[Effect]
    parameter_count_change: int
    memory_bytes_change: int
    cause: str
    message: str
    total_ratio: float
    total_ratio_low: float
    total_ratio_high: float
    def __init__(self, kind: _Optional[_Union[AdviceKind, str]] = ..., changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ..., verdict: _Optional[_Union[GainVerdict, str]] = ..., effects: _Optional[_Iterable[_Union[Effect, _Mapping]]] = ..., parameter_count_change: _Optional[int] = ..., memory_bytes_change: _Optional[int] = ..., cause: _Optional[str] = ..., message: _Optional[str] = ..., total_ratio: _Optional[float] = ..., total_ratio_low: _Optional[float] = ..., total_ratio_high: _Optional[float] = ...) -> None: ...

class FieldChange(_message.Message):
    __slots__ = ("field", "to")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    field: str
    to: str
    def __init__(self, field: _Optional[str] = ..., to: _Optional[str] = ..., **kwargs) -> None: ...

class Effect(_message.Message):
    __slots__ = ("gpu", "workload", "time_ratio", "time_ratio_low", "time_ratio_high", "prediction", "energy_ratio", "step_time_ratio")
    GPU_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_LOW_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_HIGH_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    ENERGY_RATIO_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    workload: int
    time_ratio: float
    time_ratio_low: float
    time_ratio_high: float
    prediction: _prediction_pb2.Prediction
    energy_ratio: float
    step_time_ratio: float
    def __init__(self, gpu: _Optional[str] = ..., workload: _Optional[int] = ..., time_ratio: _Optional[float] = ..., time_ratio_low: _Optional[float] = ..., time_ratio_high: _Optional[float] = ..., prediction: _Optional[_Union[_prediction_pb2.Prediction, _Mapping]] = ..., energy_ratio: _Optional[float] = ..., step_time_ratio: _Optional[float] = ...) -> None: ...
