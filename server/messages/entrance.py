"""What no message may hold, whatever its method: characters that are not printed, names as long as books, and numbers that are none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

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
        sort = _sort(field)
        if sort == "text":
            _check_texts([value] if isinstance(value, str) else value, path + field.name)
        elif sort == "number":
            if not all(map(math.isfinite, [value] if isinstance(value, float) else value)):
                where = path + field.name
                raise InvalidInput(f"{where} is no finite number", reason="BAD_NUMBER", field=where)
        elif sort == "map":
            _check_texts([text for pair in value.items() for text in pair if isinstance(text, str)], path + field.name)
        elif sort == "messages":
            for each in [value] if isinstance(value, Message) else value:
                check_message(each, f"{path}{field.name}.")


@cache
def _sort(field: FieldDescriptor) -> str:
    """What is looked at in a field: nothing in whole numbers and words of an enum."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "" if field.type == FieldDescriptor.TYPE_BYTES or field.name in TEXTS else "text"
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:  # a map's are of names to numbers or words
        held = field.message_type
        return "map" if held is not None and held.GetOptions().map_entry else "messages"
    return "number" if field.cpp_type in NUMBERS else ""


def _check_texts(texts: Iterable[str], where: str) -> None:
    for text in texts:
        if len(text) > NAME_MAX:  # what looks for the nearest name would take a second
            message = f"{where} has {len(text):,} characters; at most {NAME_MAX:,}"
            raise InvalidInput(message, reason="BAD_TEXT", field=where)
        if has_control(text):
            raise InvalidInput(f"{where} holds a character that is not printed", reason="BAD_TEXT", field=where)
