from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Model(_message.Message):
    __slots__ = ("config_json", "shape_toml", "name", "overrides", "allow_defaults")
    class OverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    SHAPE_TOML_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    config_json: str
    shape_toml: str
    name: str
    overrides: _containers.ScalarMap[str, int]
    allow_defaults: bool
    def __init__(self, config_json: _Optional[str] = ..., shape_toml: _Optional[str] = ..., name: _Optional[str] = ..., overrides: _Optional[_Mapping[str, int]] = ..., allow_defaults: bool = ...) -> None: ...

class ModelSummary(_message.Message):
    __slots__ = ("name", "family", "model_type", "parameter_count", "active_parameter_count", "parameter_count_by_part", "rank_parameter_count", "notes")
    class ParameterCountByPartEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_BY_PART_FIELD_NUMBER: _ClassVar[int]
    RANK_PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    family: str
    model_type: str
    parameter_count: int
    active_parameter_count: int
    parameter_count_by_part: _containers.ScalarMap[str, int]
    rank_parameter_count: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., family: _Optional[str] = ..., model_type: _Optional[str] = ..., parameter_count: _Optional[int] = ..., active_parameter_count: _Optional[int] = ..., parameter_count_by_part: _Optional[_Mapping[str, int]] = ..., rank_parameter_count: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...
