"""Messages out of the blue: of the right schema with figures that nobody would send, and broken ones."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = [path.read_text() for path in sorted((ROOT / "examples").glob("*.json"))]
GPUS = ["h100-sxm5-80gb", "mi300x", "b200-sxm-180gb"]
WORDS = [
    "", *GPUS, "h999", "gpus/mi300x", "gpus/h100-sxm5-80gb/calibrations/x", "bf16", "\x00", "é" * 50,
    "../../etc/passwd", "gpus/../x", "a" * 5000, "1", "-1", "models/gemm.npz", "card.json", "0" * 64, "hidden_size", "NaN",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, 8, 64, 100, 4096, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, float("inf"), float("-inf"), float("nan")]
NONSENSE: list[Any] = [None, "x", [], {}, True, 1e308, [[[]]], {"a": {}}, *NUMBERS]


class Blue:
    """filled(message): about three fields in four are set."""

    def __init__(self, some: random.Random) -> None:
        self._random = some

    def filled(self, message: Any, depth: int = 0) -> Any:
        for field in message.DESCRIPTOR.fields:
            if self._random.random() < (0.75 if depth < 3 else 0.3):
                self._fill(message, field, depth)
        return message

    def value(self, field: FieldDescriptor) -> Any:
        """Something that a field of a plain type can hold."""
        some = self._random
        if field.enum_type:
            return some.choice([value.number for value in field.enum_type.values] + [99])
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            word = self._config() if field.name == "config_json" else some.choice(WORDS)
            return word.encode() if field.type == FieldDescriptor.TYPE_BYTES else word
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return some.random() < 0.5
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return some.choice(REALS)
        return within(field, some.choice([*NUMBERS[:9], some.randrange(20_000), some.choice(NUMBERS)]))

    def _fill(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        target = getattr(message, field.name)
        if is_map(field):
            value = field.message_type.fields_by_name["value"]
            for _ in range(self._random.randrange(4)):
                if not value.message_type:
                    target[self._random.choice(WORDS)] = self.value(value)
        elif field.is_repeated:
            for _ in range(self._random.choice((0, 1, 2, 3, 20)) if depth < 4 else 0):
                self.filled(target.add(), depth + 1) if field.message_type else target.append(self.value(field))
        elif field.message_type:
            self.filled(target, depth + 1).SetInParent()
        else:
            setattr(message, field.name, self.value(field))

    def _config(self) -> str:
        """A real config.json with some of its entries replaced by nonsense, or cut off."""
        some, content = self._random, json.loads(self._random.choice(CONFIGS))
        for key in list(content):
            if some.random() < 0.1:
                content[key] = some.choice(NONSENSE)
        text = json.dumps(content)
        broken = (text[: some.randrange(len(text))], "[" * 100_000, "{}", "1e9")
        return text if some.random() < 0.9 else some.choice(broken)


def broken(content: bytes, some: random.Random) -> bytes:
    """Cut off, changed here and there, or with something at its end."""
    cut = bytearray(content[: some.randrange(len(content) + 1)] if some.random() < 0.5 else content)
    for _ in range(some.randrange(6)):
        if cut:
            cut[some.randrange(len(cut))] = some.randrange(256)
    return bytes(cut) + some.randbytes(some.choice((0, 0, 1, 20)))


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def within(field: FieldDescriptor, number: int) -> int:
    """The nearest number that an integer field can hold."""
    wide = field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
    unsigned = field.cpp_type in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
    bits = 63 if wide else 31
    return min(max(number, 0 if unsigned else -(2**bits)), 2**bits - 1)


def serialized(messages: list[Message]) -> list[bytes]:
    return [message.SerializeToString() for message in messages]
