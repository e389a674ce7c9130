from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Stack(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STACK_UNSPECIFIED: _ClassVar[Stack]
    STACK_TRANSFORMERS: _ClassVar[Stack]
    STACK_TORCHTITAN: _ClassVar[Stack]
    STACK_VLLM: _ClassVar[Stack]
    STACK_SGLANG: _ClassVar[Stack]
    STACK_TRTLLM: _ClassVar[Stack]
    STACK_MEGATRON: _ClassVar[Stack]

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_TRAIN: _ClassVar[Phase]
    PHASE_PREFILL: _ClassVar[Phase]
    PHASE_DECODE: _ClassVar[Phase]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_EAGER: _ClassVar[Mode]
    MODE_COMPILED: _ClassVar[Mode]
    MODE_GRAPH: _ClassVar[Mode]

class Precision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRECISION_UNSPECIFIED: _ClassVar[Precision]
    PRECISION_FP64: _ClassVar[Precision]
    PRECISION_FP32: _ClassVar[Precision]
    PRECISION_TF32: _ClassVar[Precision]
    PRECISION_BF16: _ClassVar[Precision]
    PRECISION_FP16: _ClassVar[Precision]
    PRECISION_FP8: _ClassVar[Precision]
    PRECISION_FP8_ROW: _ClassVar[Precision]
    PRECISION_INT8: _ClassVar[Precision]
    PRECISION_MXFP8: _ClassVar[Precision]
    PRECISION_MXFP6: _ClassVar[Precision]
    PRECISION_MXFP4: _ClassVar[Precision]
    PRECISION_NVFP4: _ClassVar[Precision]
    PRECISION_FP8_BLOCK: _ClassVar[Precision]

class Recompute(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOMPUTE_UNSPECIFIED: _ClassVar[Recompute]
    RECOMPUTE_NONE: _ClassVar[Recompute]
    RECOMPUTE_SELECTIVE: _ClassVar[Recompute]
    RECOMPUTE_FULL: _ClassVar[Recompute]

class Optimizer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPTIMIZER_UNSPECIFIED: _ClassVar[Optimizer]
    OPTIMIZER_NONE: _ClassVar[Optimizer]
    OPTIMIZER_ADAMW: _ClassVar[Optimizer]

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_BURST: _ClassVar[State]
    STATE_SUSTAINED: _ClassVar[State]

class Logits(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOGITS_UNSPECIFIED: _ClassVar[Logits]
    LOGITS_LAST: _ClassVar[Logits]
    LOGITS_ALL: _ClassVar[Logits]

class AttentionBackend(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTENTION_BACKEND_UNSPECIFIED: _ClassVar[AttentionBackend]
    ATTENTION_BACKEND_AUTO: _ClassVar[AttentionBackend]
    ATTENTION_BACKEND_FLASH: _ClassVar[AttentionBackend]
    ATTENTION_BACKEND_CUDNN: _ClassVar[AttentionBackend]
    ATTENTION_BACKEND_MATH: _ClassVar[AttentionBackend]

class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_UNSPECIFIED: _ClassVar[Engine]
    ENGINE_NONE: _ClassVar[Engine]
    ENGINE_TRTLLM: _ClassVar[Engine]
    ENGINE_VLLM: _ClassVar[Engine]
    ENGINE_SGLANG: _ClassVar[Engine]

class KvCache(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KV_CACHE_UNSPECIFIED: _ClassVar[KvCache]
    KV_CACHE_AUTO: _ClassVar[KvCache]
    KV_CACHE_FP8: _ClassVar[KvCache]

class Cache(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_UNSPECIFIED: _ClassVar[Cache]
    CACHE_NONE: _ClassVar[Cache]
    CACHE_APPEND: _ClassVar[Cache]
STACK_UNSPECIFIED: Stack
STACK_TRANSFORMERS: Stack
STACK_TORCHTITAN: Stack
STACK_VLLM: Stack
STACK_SGLANG: Stack
STACK_TRTLLM: Stack
STACK_MEGATRON: Stack
PHASE_UNSPECIFIED: Phase
PHASE_TRAIN: Phase
PHASE_PREFILL: Phase
PHASE_DECODE: Phase
MODE_UNSPECIFIED: Mode
MODE_EAGER: Mode
MODE_COMPILED: Mode
MODE_GRAPH: Mode
PRECISION_UNSPECIFIED: Precision
PRECISION_FP64: Precision
PRECISION_FP32: Precision
PRECISION_TF32: Precision
PRECISION_BF16: Precision
PRECISION_FP16: Precision
PRECISION_FP8: Precision
PRECISION_FP8_ROW: Precision
PRECISION_INT8: Precision
PRECISION_MXFP8: Precision
PRECISION_MXFP6: Precision
PRECISION_MXFP4: Precision
PRECISION_NVFP4: Precision
PRECISION_FP8_BLOCK: Precision
RECOMPUTE_UNSPECIFIED: Recompute
RECOMPUTE_NONE: Recompute
RECOMPUTE_SELECTIVE: Recompute
RECOMPUTE_FULL: Recompute
OPTIMIZER_UNSPECIFIED: Optimizer
OPTIMIZER_NONE: Optimizer
OPTIMIZER_ADAMW: Optimizer
STATE_UNSPECIFIED: State
STATE_BURST: State
STATE_SUSTAINED: State
LOGITS_UNSPECIFIED: Logits
LOGITS_LAST: Logits
LOGITS_ALL: Logits
ATTENTION_BACKEND_UNSPECIFIED: AttentionBackend
ATTENTION_BACKEND_AUTO: AttentionBackend
ATTENTION_BACKEND_FLASH: AttentionBackend
ATTENTION_BACKEND_CUDNN: AttentionBackend
ATTENTION_BACKEND_MATH: AttentionBackend
ENGINE_UNSPECIFIED: Engine
ENGINE_NONE: Engine
ENGINE_TRTLLM: Engine
ENGINE_VLLM: Engine
ENGINE_SGLANG: Engine
KV_CACHE_UNSPECIFIED: KvCache
KV_CACHE_AUTO: KvCache
KV_CACHE_FP8: KvCache
CACHE_UNSPECIFIED: Cache
CACHE_NONE: Cache
CACHE_APPEND: Cache

class Workload(_message.Message):
    __slots__ = ("phase", "batch", "sequence", "context", "precision", "mode", "tensor_parallel", "recompute", "optimizer", "state", "logits", "attention_backend", "cache", "engine", "kv_cache", "expert_skew", "expert_parallel", "issue_us", "stack", "reserve")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOGITS_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_BACKEND_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_FIELD_NUMBER: _ClassVar[int]
    EXPERT_SKEW_FIELD_NUMBER: _ClassVar[int]
    EXPERT_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    ISSUE_US_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    batch: int
    sequence: int
    context: int
    precision: Precision
    mode: Mode
    tensor_parallel: int
    recompute: Recompute
    optimizer: Optimizer
    state: State
    logits: Logits
    attention_backend: AttentionBackend
    cache: Cache
    engine: Engine
    kv_cache: KvCache
    expert_skew: float
    expert_parallel: int
    issue_us: float
    stack: Stack
    reserve: float
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., batch: _Optional[int] = ..., sequence: _Optional[int] = ..., context: _Optional[int] = ..., precision: _Optional[_Union[Precision, str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., tensor_parallel: _Optional[int] = ..., recompute: _Optional[_Union[Recompute, str]] = ..., optimizer: _Optional[_Union[Optimizer, str]] = ..., state: _Optional[_Union[State, str]] = ..., logits: _Optional[_Union[Logits, str]] = ..., attention_backend: _Optional[_Union[AttentionBackend, str]] = ..., cache: _Optional[_Union[Cache, str]] = ..., engine: _Optional[_Union[Engine, str]] = ..., kv_cache: _Optional[_Union[KvCache, str]] = ..., expert_skew: _Optional[float] = ..., expert_parallel: _Optional[int] = ..., issue_us: _Optional[float] = ..., stack: _Optional[_Union[Stack, str]] = ..., reserve: _Optional[float] = ...) -> None: ...
