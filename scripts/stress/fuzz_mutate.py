"""Mutation: a valid request with up to three of its fields changed, so that it fails deep inside or not at all."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fuzz_random import GPUS, NONSENSE, NUMBERS, REALS, WORDS, Blue, is_map, within
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

SIZES = [
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "num_hidden_layers", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "batch", "sequence", "context",
    "tensor_parallel",
]  # fmt: skip
LISTS = (2, 3, 40)  # how often an element is repeated; 40 GPUs and 40 workloads are more than are allowed
NUMBER = re.compile(r"\d+(\.\d+)?")


class Place(NamedTuple):
    """A field of a message somewhere inside a request."""

    message: Any
    field: FieldDescriptor


class Mutate:
    """mutated(messages): the same requests, changed in up to three places."""

    def __init__(self, some: random.Random) -> None:
        self._random, self._blue = some, Blue(some)

    def mutated(self, messages: list[Message]) -> list[Message]:
        some = self._random
        for _ in range(some.choice((0, 1, 1, 1, 2, 3))):
            if len(messages) > 1 and some.random() < 0.3:
                self._stream(messages)
            places = [place for message in messages for place in self._places(message)]
            if places:
                self._change(*some.choice(places))
        return messages

    def _stream(self, messages: list[Message]) -> None:
        """A message of a stream is lost, comes twice or comes too early."""
        at, what = self._random.randrange(len(messages)), self._random.randrange(3)
        message = messages.pop(at)
        if what:
            messages.insert(at if what == 1 else self._random.randrange(len(messages) + 1), message)
        if what == 1:
            messages.insert(at, message)

    def _places(self, message: Any) -> Iterator[Place]:
        """Fields that are set, three times as likely each, and those that are not."""
        for field in message.DESCRIPTOR.fields:
            yield Place(message, field)
        for field, value in message.ListFields():
            yield from [Place(message, field)] * 2
            if field.message_type and not is_map(field):
                for each in value if field.is_repeated else (value,):
                    yield from self._places(each)

    def _change(self, message: Any, field: FieldDescriptor) -> None:
        some, target = self._random, getattr(message, field.name)
        if is_map(field):
            value = field.message_type.fields_by_name["value"]
            if not value.message_type:
                target[some.choice(SIZES)] = within(value, self._number(some.choice([64, *target.values()])))
        elif field.is_repeated:
            self._list(message, field, target)
        elif some.random() < 0.1:
            message.ClearField(field.name)
        elif field.message_type:
            if some.random() < 0.3:
                self._blue.filled(target, 2).SetInParent()
        else:
            setattr(message, field.name, self._value(field, target))

    def _list(self, message: Any, field: FieldDescriptor, target: Any) -> None:
        some = self._random
        what = some.randrange(4)
        if what == 0 and target:
            del target[some.randrange(len(target))]
        elif what == 1 and target:
            target.extend([some.choice(target)] * (some.choice(LISTS) - 1))
        elif field.message_type:
            self._blue.filled(target.add(), 2)
        elif target:
            at = some.randrange(len(target))
            target[at] = self._value(field, target[at])
        else:
            target.append(self._blue.value(field))

    def _value(self, field: FieldDescriptor, old: Any) -> Any:
        some = self._random
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._bytes(old)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return self._text(old)
        if field.enum_type or field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return self._blue.value(field)
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return some.choice([*REALS, old / 2, old * 2])
        return within(field, self._number(old))

    def _number(self, old: int) -> int:
        some = self._random
        return some.choice([old + 1, old - 1, old * 2, old // 2, old + 64, some.choice(NUMBERS)])

    def _bytes(self, old: bytes) -> bytes:
        changed = bytearray(old)
        if changed:
            changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed) if self._random.random() < 0.7 else bytes(changed[: len(changed) // 2])

    def _text(self, old: str) -> str:
        if old.startswith("{"):
            with suppress(ValueError, IndexError):  # it was broken by an earlier change
                return self._json(old)
        if "\n" in old:
            return self._lines(old)
        words = [*WORDS, *GPUS, *SIZES, old.upper(), old[:-1], old + "x", old + old]
        return self._random.choice(words)

    def _json(self, old: str) -> str:
        """A config.json with one entry changed, gone, or called otherwise; now and then cut off."""
        some, content = self._random, json.loads(old)
        key = some.choice(list(content))
        value, what = content[key], some.randrange(8)
        if what < 4 and isinstance(value, int) and not isinstance(value, bool):
            content[key] = self._number(value)
        elif what == 4:
            del content[key]
        elif what == 5:
            content[some.choice([*SIZES, *content])] = value
        else:
            content[key] = some.choice([*NONSENSE, some.choice(list(content.values()))])
        text = json.dumps(content)
        return text if some.random() < 0.97 else text[: some.randrange(len(text))]

    def _lines(self, old: str) -> str:
        """A policy or a shape with one line gone, twice there, or with another number or word in it."""
        some, lines = self._random, old.split("\n")
        at = some.randrange(len(lines))
        what, found = some.randrange(4), list(NUMBER.finditer(lines[at]))
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(some.randrange(len(lines)), lines[at])
        elif found:
            digits = some.choice(found)
            new = str(some.choice([*NUMBERS, *REALS]))
            lines[at] = lines[at][: digits.start()] + new + lines[at][digits.end() :]
        else:
            other = some.choice(lines)
            lines[at] = lines[at].partition("=")[0] + "=" + other.partition("=")[2]
        return "\n".join(lines)
