from tilewise.v1 import prediction_pb2 as _prediction_pb2
from tilewise.v1 import workload_pb2 as _workload_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Step(_message.Message):
    __slots__ = ("prediction", "token_count", "tokens_per_s", "mfu", "hfu", "palm_mfu", "mbu", "peak", "model_flops", "full_attention_flops", "palm_flops", "executed_flops", "traffic_bytes", "busy_s", "issue_s", "kernel_count", "walls", "regime", "padding_s", "wave_s", "alignment_s", "refusal", "losses", "energy_j", "flops_per_j", "energy_low_j", "energy_high_j", "weakest_link")
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MFU_FIELD_NUMBER: _ClassVar[int]
    HFU_FIELD_NUMBER: _ClassVar[int]
    PALM_MFU_FIELD_NUMBER: _ClassVar[int]
    MBU_FIELD_NUMBER: _ClassVar[int]
    PEAK_FIELD_NUMBER: _ClassVar[int]
    MODEL_FLOPS_FIELD_NUMBER: _ClassVar[int]
    FULL_ATTENTION_FLOPS_FIELD_NUMBER: _ClassVar[int]
    PALM_FLOPS_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FLOPS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    ISSUE_S_FIELD_NUMBER: _ClassVar[int]
    KERNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    WALLS_FIELD_NUMBER: _ClassVar[int]
    REGIME_FIELD_NUMBER: _ClassVar[int]
    PADDING_S_FIELD_NUMBER: _ClassVar[int]
    WAVE_S_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_S_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    FLOPS_PER_J_FIELD_NUMBER: _ClassVar[int]
    ENERGY_LOW_J_FIELD_NUMBER: _ClassVar[int]
    ENERGY_HIGH_J_FIELD_NUMBER: _ClassVar[int]
    WEAKEST_LINK_FIELD_NUMBER: _ClassVar[int]
    prediction: _prediction_pb2.Prediction
    token_count: int
    tokens_per_s: float
    mfu: float
    hfu: float
    palm_mfu: float
    mbu: float
    peak: _prediction_pb2.Peak
    model_flops: float
    full_attention_flops: float
    palm_flops: float
    executed_flops: float
    traffic_bytes: float
    busy_s: float
    issue_s: float
    kernel_count: float
    walls: _containers.RepeatedCompositeFieldContainer[_prediction_pb2.WallShare]
    regime: str
    padding_s: float
    wave_s: float
    alignment_s: float
    refusal: str
    losses: _containers.RepeatedCompositeFieldContainer[Loss]
    energy_j: float
    flops_per_j: float
    energy_low_j: float
    energy_high_j: float
    weakest_link: str
    def __init__(self, prediction: _Optional[_Union[_prediction_pb2.Prediction, _Mapping]] = ..., token_count: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., mfu: _Optional[float] = ..., hfu: _Optional[float] = ..., palm_mfu: _Optional[float] = ..., mbu: _Optional[float] = ..., peak: _Optional[_Union[_prediction_pb2.Peak, _Mapping]] = ..., model_flops: _Optional[float] = ..., full_attention_flops: _Optional[float] = ..., palm_flops: _Optional[float] = ..., executed_flops: _Optional[float] = ..., traffic_bytes: _Optional[float] = ..., busy_s: _Optional[float] = ..., issue_s: _Optional[float] = ..., kernel_count: _Optional[float] = ..., walls: _Optional[_Iterable[_Union[_prediction_pb2.WallShare, _Mapping]]] = ..., regime: _Optional[str] = ..., padding_s: _Optional[float] = ..., wave_s: _Optional[float] = ..., alignment_s: _Optional[float] = ..., refusal: _Optional[str] = ..., losses: _Optional[_Iterable[_Union[Loss, _Mapping]]] = ..., energy_j: _Optional[float] = ..., flops_per_j: _Optional[float] = ..., energy_low_j: _Optional[float] = ..., energy_high_j: _Optional[float] = ..., weakest_link: _Optional[str] = ...) -> None: ...

class Loss(_message.Message):
    __slots__ = ("cause", "time_s", "share")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    time_s: float
    share: float
    def __init__(self, cause: _Optional[str] = ..., time_s: _Optional[float] = ..., share: _Optional[float] = ...) -> None: ...

class Layer(_message.Message):
    __slots__ = ("name", "prediction", "share", "mfu", "peak", "mbu", "model_flops", "traffic_bytes", "kernel_count", "walls", "losses")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    MFU_FIELD_NUMBER: _ClassVar[int]
    PEAK_FIELD_NUMBER: _ClassVar[int]
    MBU_FIELD_NUMBER: _ClassVar[int]
    MODEL_FLOPS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_BYTES_FIELD_NUMBER: _ClassVar[int]
    KERNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    WALLS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    name: str
    prediction: _prediction_pb2.Prediction
    share: float
    mfu: float
    peak: _prediction_pb2.Peak
    mbu: float
    model_flops: float
    traffic_bytes: float
    kernel_count: float
    walls: _containers.RepeatedCompositeFieldContainer[_prediction_pb2.WallShare]
    losses: _containers.RepeatedCompositeFieldContainer[Loss]
    def __init__(self, name: _Optional[str] = ..., prediction: _Optional[_Union[_prediction_pb2.Prediction, _Mapping]] = ..., share: _Optional[float] = ..., mfu: _Optional[float] = ..., peak: _Optional[_Union[_prediction_pb2.Peak, _Mapping]] = ..., mbu: _Optional[float] = ..., model_flops: _Optional[float] = ..., traffic_bytes: _Optional[float] = ..., kernel_count: _Optional[float] = ..., walls: _Optional[_Iterable[_Union[_prediction_pb2.WallShare, _Mapping]]] = ..., losses: _Optional[_Iterable[_Union[Loss, _Mapping]]] = ...) -> None: ...

class Operator(_message.Message):
    __slots__ = ("name", "layer", "part", "direction", "kind", "shape", "precision", "count", "kernel_count", "prediction", "total_s", "share", "mfu", "peak", "model_flops", "executed_flops", "traffic_bytes", "compute_s", "memory_s", "special_function_s", "launch_s", "padding_s", "wave_s", "alignment_s", "kernel", "tile_count", "wave_count", "refusal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    KERNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_S_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    MFU_FIELD_NUMBER: _ClassVar[int]
    PEAK_FIELD_NUMBER: _ClassVar[int]
    MODEL_FLOPS_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FLOPS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_S_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_FUNCTION_S_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_S_FIELD_NUMBER: _ClassVar[int]
    PADDING_S_FIELD_NUMBER: _ClassVar[int]
    WAVE_S_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_S_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    TILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    layer: str
    part: str
    direction: str
    kind: str
    shape: str
    precision: _workload_pb2.Precision
    count: float
    kernel_count: float
    prediction: _prediction_pb2.Prediction
    total_s: float
    share: float
    mfu: float
    peak: _prediction_pb2.Peak
    model_flops: float
    executed_flops: float
    traffic_bytes: float
    compute_s: float
    memory_s: float
    special_function_s: float
    launch_s: float
    padding_s: float
    wave_s: float
    alignment_s: float
    kernel: str
    tile_count: float
    wave_count: float
    refusal: str
    def __init__(self, name: _Optional[str] = ..., layer: _Optional[str] = ..., part: _Optional[str] = ..., direction: _Optional[str] = ..., kind: _Optional[str] = ..., shape: _Optional[str] = ..., precision: _Optional[_Union[_workload_pb2.Precision, str]] = ..., count: _Optional[float] = ..., kernel_count: _Optional[float] = ..., prediction: _Optional[_Union[_prediction_pb2.Prediction, _Mapping]] = ..., total_s: _Optional[float] = ..., share: _Optional[float] = ..., mfu: _Optional[float] = ..., peak: _Optional[_Union[_prediction_pb2.Peak, _Mapping]] = ..., model_flops: _Optional[float] = ..., executed_flops: _Optional[float] = ..., traffic_bytes: _Optional[float] = ..., compute_s: _Optional[float] = ..., memory_s: _Optional[float] = ..., special_function_s: _Optional[float] = ..., launch_s: _Optional[float] = ..., padding_s: _Optional[float] = ..., wave_s: _Optional[float] = ..., alignment_s: _Optional[float] = ..., kernel: _Optional[str] = ..., tile_count: _Optional[float] = ..., wave_count: _Optional[float] = ..., refusal: _Optional[str] = ...) -> None: ...

class OperatorColumn(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class Memory(_message.Message):
    __slots__ = ("total_bytes", "capacity_bytes", "fits", "free_bytes", "peak_moment", "parts", "kv_cache_bytes_per_token", "reserve_bytes", "kv_cache_bytes_per_later_token")
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_MOMENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESERVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_BYTES_PER_LATER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    total_bytes: int
    capacity_bytes: int
    fits: bool
    free_bytes: int
    peak_moment: str
    parts: _containers.RepeatedCompositeFieldContainer[MemoryPart]
    kv_cache_bytes_per_token: int
    reserve_bytes: int
    kv_cache_bytes_per_later_token: int
    def __init__(self, total_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., fits: bool = ..., free_bytes: _Optional[int] = ..., peak_moment: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[MemoryPart, _Mapping]]] = ..., kv_cache_bytes_per_token: _Optional[int] = ..., reserve_bytes: _Optional[int] = ..., kv_cache_bytes_per_later_token: _Optional[int] = ...) -> None: ...

class MemoryPart(_message.Message):
    __slots__ = ("name", "size_bytes", "peak_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_bytes: int
    peak_bytes: int
    def __init__(self, name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., peak_bytes: _Optional[int] = ...) -> None: ...

class Diagnosis(_message.Message):
    __slots__ = ("regime", "signs", "remedies")
    REGIME_FIELD_NUMBER: _ClassVar[int]
    SIGNS_FIELD_NUMBER: _ClassVar[int]
    REMEDIES_FIELD_NUMBER: _ClassVar[int]
    regime: str
    signs: _containers.RepeatedScalarFieldContainer[str]
    remedies: _containers.RepeatedCompositeFieldContainer[Remedy]
    def __init__(self, regime: _Optional[str] = ..., signs: _Optional[_Iterable[str]] = ..., remedies: _Optional[_Iterable[_Union[Remedy, _Mapping]]] = ...) -> None: ...

class Remedy(_message.Message):
    __slots__ = ("kind", "change", "prediction", "tokens_per_s", "gain", "gain_low", "gain_high", "memory_bytes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    GAIN_LOW_FIELD_NUMBER: _ClassVar[int]
    GAIN_HIGH_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    change: str
    prediction: _prediction_pb2.Prediction
    tokens_per_s: float
    gain: float
    gain_low: float
    gain_high: float
    memory_bytes: int
    def __init__(self, kind: _Optional[str] = ..., change: _Optional[str] = ..., prediction: _Optional[_Union[_prediction_pb2.Prediction, _Mapping]] = ..., tokens_per_s: _Optional[float] = ..., gain: _Optional[float] = ..., gain_low: _Optional[float] = ..., gain_high: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...
