"""A saved prediction (`tilewise predict --format json`) as the base of a comparison."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from tilewise.client.render.data import SCHEMA_VERSION
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.messages.words import prefix
from tilewise.v1.check_pb2 import SavedPrediction
from tilewise.v1.prediction_pb2 import Prediction
from tilewise.v1.report_pb2 import Layer, OperatorColumn, Step
from tilewise.v1.workload_pb2 import Workload

RENEW = "tilewise predict CONFIG --gpu SKU ... --format json -o {path}"


def predictions(text: str, path: str) -> list[SavedPrediction] | None:
    """The predictions that a file holds; None where it is no prediction (but a config.json).

    Raises InvalidInput (OLD_BASELINE) for one of another schema, with the way to renew it.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "schema_version" not in data:
        return None
    if data["schema_version"] != SCHEMA_VERSION:
        raise _old(path, f"has schema {data['schema_version']!r}, this version reads {SCHEMA_VERSION}")
    reports = data.get("reports", [data])
    try:
        return [_prediction(report) for report in reports]
    except (KeyError, TypeError, AttributeError, ParseError) as error:
        raise _old(path, "is no prediction, or one of another version: " + f"{error}".split("\n")[0]) from error


def _old(path: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"{path} {why}", reason="OLD_BASELINE", field="base_file", hint="renew it: " + RENEW.format(path=path)
    )


def _prediction(report: dict[str, Any]) -> SavedPrediction:
    if report["step"]["time_s"] is None:
        raise KeyError("the step has no time")
    if not report.get("rows"):
        raise KeyError("its operators are missing, so that nothing tells what it shares with the change")
    return SavedPrediction(
        gpu=report["gpu"]["sku"],
        workload=_message(Workload, report["workload"]),
        step=_timed(Step, report["step"]),
        memory_bytes=report["memory"]["total_bytes"],
        does_not_fit=not report["memory"]["fits"],
        parameter_count=report["architecture"]["parameter_count"],
        layers=[_timed(Layer, layer) for layer in report["layers"]],
        rows=[_message(OperatorColumn, column) for column in report["rows"]],
    )


def _timed(kind: Any, data: dict[str, Any]) -> Any:
    """A Step or Layer: a Prediction's fields stand among its own (client.render.data)."""
    message = _message(kind, data)
    message.prediction.CopyFrom(_message(Prediction, data))
    return message


def _message(kind: Any, data: dict[str, Any]) -> Any:
    """A message from plain data: words back to enum names, unknown keys and nulls left out."""
    return ParseDict(_plain(kind.DESCRIPTOR, data), kind(), ignore_unknown_fields=True)


def _plain(descriptor: Any, data: dict[str, Any]) -> dict[str, Any]:
    known = {}
    for field in descriptor.fields:
        value = data.get(field.name)
        if value is None or value == "":
            continue
        if field.enum_type is not None:
            value = prefix(field.enum_type) + str(value).upper()
        elif field.message_type is not None:
            value = [_plain(field.message_type, each) for each in value] if isinstance(value, list) else None
        if value is not None:
            known[field.name] = value
    return known
