"""Answers as plain data for JSON: the contract's own names and SI units, enums as lower-case words, unset as null."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.rpc.status_pb2 import Status

from tilewise.server.messages.words import living, word
from tilewise.v1.prediction_pb2 import Peak, Prediction

SCHEMA_VERSION = 1


def to_json(answer: Message) -> str:
    """An answer as indented JSON text with its schema version, keys in the order of the contract."""
    return dumps(to_data(answer))


def dumps(data: dict[str, Any]) -> str:
    return json.dumps(versioned(data), indent=2) + "\n"


def versioned(data: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **data}


def to_data(message: Message) -> dict[str, Any]:
    """A message as a dict. A Prediction and a Peak stand among the fields of the message that holds them."""
    data: dict[str, Any] = {}
    for field in living(message.DESCRIPTOR).values():
        if field.message_type is Prediction.DESCRIPTOR:
            data.update(prediction_data(getattr(message, field.name), message.HasField(field.name)))
        elif field.message_type is Peak.DESCRIPTOR and not field.is_repeated:
            data.update(peak_data(getattr(message, field.name), message.HasField(field.name)))
        else:
            data[field.name] = field_data(message, field)
    return data


def prediction_data(prediction: Prediction, known: bool) -> dict[str, Any]:
    return to_data(prediction) if known else dict.fromkeys(field.name for field in Prediction.DESCRIPTOR.fields)


def peak_data(peak: Peak, known: bool) -> dict[str, Any]:
    """peak_tflops, peak_kind, peak_source ...: what stands beside every MFU."""
    values: dict[str, Any] = {
        "peak_tflops": peak.flops_per_s / 1e12,
        "peak_kind": peak.kind,
        "peak_source": peak.source,
        "peak_key": peak.key,
        "peak_clock_hz": peak.clock_hz,
    }
    return values if known else dict.fromkeys(values)


def field_data(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: value[key] for key in sorted(value)}
    if field.is_repeated:
        return [single(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return single(field, value)


def single(field: Any, value: Any) -> Any:
    if isinstance(value, Struct):
        return struct_data(value)
    if isinstance(value, Status):
        return status_data(value)
    if isinstance(value, Message):
        return to_data(value)
    return word(field.enum_type, value) if field.enum_type is not None else value


def status_data(status: Status) -> dict[str, Any]:
    """Why there is no value: the code by its name, the reason, the field at fault, and the message."""
    from google.rpc.code_pb2 import Code

    from tilewise.server.messages.status import from_status

    meant = from_status(status)
    return {
        "code": Code.Name(status.code),
        "reason": meant.reason if meant else "",
        "field": meant.field if meant else "",
        "message": status.message,
    }


def struct_data(value: Struct) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    data: dict[str, Any] = MessageToDict(value)
    return data
