from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Trust(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUST_UNSPECIFIED: _ClassVar[Trust]
    TRUST_DATASHEET: _ClassVar[Trust]
    TRUST_PUBLISHED: _ClassVar[Trust]
    TRUST_MEASURED: _ClassVar[Trust]

class Wall(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WALL_UNSPECIFIED: _ClassVar[Wall]
    WALL_COMPUTE: _ClassVar[Wall]
    WALL_MEMORY: _ClassVar[Wall]
    WALL_SPECIAL_FUNCTION: _ClassVar[Wall]
    WALL_LAUNCH: _ClassVar[Wall]
    WALL_COMMUNICATION: _ClassVar[Wall]
TRUST_UNSPECIFIED: Trust
TRUST_DATASHEET: Trust
TRUST_PUBLISHED: Trust
TRUST_MEASURED: Trust
WALL_UNSPECIFIED: Wall
WALL_COMPUTE: Wall
WALL_MEMORY: Wall
WALL_SPECIAL_FUNCTION: Wall
WALL_LAUNCH: Wall
WALL_COMMUNICATION: Wall

class Prediction(_message.Message):
    __slots__ = ("time_s", "time_low_s", "time_high_s", "trust", "calibration", "distance", "wall")
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    TIME_LOW_S_FIELD_NUMBER: _ClassVar[int]
    TIME_HIGH_S_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    WALL_FIELD_NUMBER: _ClassVar[int]
    time_s: float
    time_low_s: float
    time_high_s: float
    trust: Trust
    calibration: str
    distance: float
    wall: Wall
    def __init__(self, time_s: _Optional[float] = ..., time_low_s: _Optional[float] = ..., time_high_s: _Optional[float] = ..., trust: _Optional[_Union[Trust, str]] = ..., calibration: _Optional[str] = ..., distance: _Optional[float] = ..., wall: _Optional[_Union[Wall, str]] = ...) -> None: ...

class Peak(_message.Message):
    __slots__ = ("key", "flops_per_s", "kind", "source", "mark", "clock_hz", "highest_clock_hz")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FLOPS_PER_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    CLOCK_HZ_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_CLOCK_HZ_FIELD_NUMBER: _ClassVar[int]
    key: str
    flops_per_s: float
    kind: str
    source: str
    mark: str
    clock_hz: float
    highest_clock_hz: float
    def __init__(self, key: _Optional[str] = ..., flops_per_s: _Optional[float] = ..., kind: _Optional[str] = ..., source: _Optional[str] = ..., mark: _Optional[str] = ..., clock_hz: _Optional[float] = ..., highest_clock_hz: _Optional[float] = ...) -> None: ...

class WallShare(_message.Message):
    __slots__ = ("wall", "time_s", "share")
    WALL_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    wall: Wall
    time_s: float
    share: float
    def __init__(self, wall: _Optional[_Union[Wall, str]] = ..., time_s: _Optional[float] = ..., share: _Optional[float] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("done_count", "total_count")
    DONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    done_count: int
    total_count: int
    def __init__(self, done_count: _Optional[int] = ..., total_count: _Optional[int] = ...) -> None: ...
