"""What no message may hold, whatever its method: characters that are not printed, names as long as books, and numbers that are none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.texts import has_control

TEXTS = (
    "config_json",
    "shape_toml",
    "policy_toml",
    "base_policy_toml",
    "head",
    "base",
)  # files, which their parsers judge
NAME_MAX = 4096  # characters of any other text: the longest path
NUMBERS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def check_message(message: Message, path: str = "") -> None:
    """Raises InvalidInput (BAD_TEXT, BAD_NUMBER), naming the field. A message that was parsed holds valid Unicode already."""
    for field, value in message.ListFields():
        where = f"{path}{field.name}"
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.type != FieldDescriptor.TYPE_BYTES:
            if field.name not in TEXTS:
                _check_texts(_each(value), where)
        elif field.cpp_type in NUMBERS:
            if not all(map(math.isfinite, _each(value))):
                raise InvalidInput(f"{where} is no finite number", reason="BAD_NUMBER", field=where)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if isinstance(value, Mapping):  # of names to numbers or words
                _check_texts((text for pair in value.items() for text in pair if isinstance(text, str)), where)
            else:
                for each in _each(value):
                    check_message(each, f"{where}.")


def _check_texts(texts: Iterable[str], where: str) -> None:
    for text in texts:
        if len(text) > NAME_MAX:  # what looks for the nearest name would take a second
            message = f"{where} has {len(text):,} characters; at most {NAME_MAX:,}"
            raise InvalidInput(message, reason="BAD_TEXT", field=where)
        if has_control(text):
            raise InvalidInput(f"{where} holds a character that is not printed", reason="BAD_TEXT", field=where)


def _each(value: Any) -> Iterator[Any]:
    """Of a repeated field, or of a single one."""
    if isinstance(value, str | float | Message):
        yield value
    else:
        yield from value
