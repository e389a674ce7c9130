"""Words of the contract's enums and fields of its messages, read off their descriptors: nowhere are they listed again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from tilewise.hwdb.errors import InvalidInput, unknown

Kind = TypeVar("Kind", bound=Message)


@cache
def words(enum: EnumDescriptor) -> tuple[str, ...]:
    """PHASE_TRAIN, PHASE_PREFILL ... -> "train", "prefill" ...; without the unspecified value."""
    return tuple(value.name.removeprefix(prefix(enum)).lower() for value in enum.values if value.number)


@cache
def prefix(enum: EnumDescriptor) -> str:
    """What the names of an enum's values begin with, such as PHASE_."""
    first: str = enum.values_by_number[0].name
    return first.removesuffix("UNSPECIFIED")


def word(enum: EnumDescriptor, number: int, field: str = "") -> str:
    """WALL_SPECIAL_FUNCTION -> "special_function"; "" for unspecified. Raises InvalidInput for a number that the enum lacks."""
    if number not in enum.values_by_number:
        message = f"{field} {number} is no value of {enum.name}".strip()
        raise InvalidInput(message, reason="INVALID_WORKLOAD", field=field)
    return enum.values_by_number[number].name.removeprefix(prefix(enum)).lower() if number else ""


@cache
def number(enum: EnumDescriptor, word: str | None, field: str = "") -> Any:
    """ "train" -> PHASE_TRAIN; unspecified for "" and None. Raises InvalidInput with the nearest word."""
    if not word:
        return 0
    if word not in words(enum):
        raise InvalidInput(unknown(field, word, words(enum)), reason="INVALID_WORKLOAD", field=field)
    return enum.values_by_name[prefix(enum) + word.upper()].number


@cache
def living(message: Any) -> Mapping[str, FieldDescriptor]:
    """The fields of a message by name, without those that have another name now."""
    return {field.name: field for field in message.fields if not field.GetOptions().deprecated}


def retired(message: Any) -> list[str]:
    """Names of the fields of a message that have another name now."""
    return [field.name for field in message.fields if field.GetOptions().deprecated]


def type_of(field: Any) -> type:
    """What a field holds in Python: str for an enum, else int, float or bool."""
    return str if field.enum_type is not None else type(field.default_value)


def plain(message: Message) -> dict[str, Any]:
    """The fields that a message of numbers and enums sets, enums as words."""
    name, values = message.DESCRIPTOR.name.lower(), {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if value or (field.has_presence and message.HasField(field.name)):
            enum: Any = field.enum_type
            values[field.name] = value if enum is None else word(enum, value, f"{name}.{field.name}")
    return values


def filled(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """A message of numbers and enums, enums given as words; None leaves a field unset.

    Raises InvalidInput for a field or word that is not known, and ValueError for a number beyond 64 bits.
    """
    return kind(**{name: _held(kind, name, value) for name, value in values.items()})


def _held(kind: type[Message], name: str, value: Any) -> Any:
    known = living(kind.DESCRIPTOR)
    if name not in known:
        raise InvalidInput(unknown("field", name, known), reason="INVALID_WORKLOAD", field=name)
    enum: Any = known[name].enum_type
    return value if enum is None else number(enum, value, name)
