"""Log lines on stderr: one a call, and the few of the process, as JSON or as text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from tilewise.server.service.rpc.call import Call

calls = logging.getLogger("tilewise.calls")


def set_up(form: str) -> None:
    """form: json, text or none."""
    root = logging.getLogger("tilewise")
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr) if form != "none" else logging.NullHandler()
    handler.setFormatter(Json() if form == "json" else Text())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    root.propagate = False


def log_call(call: Call) -> None:
    """An Observer: one line a call. Never what was asked: shapes are secrets too."""
    if not calls.isEnabledFor(logging.INFO):
        return
    line: dict[str, Any] = {
        "method": call.method.title,
        "code": call.code,
        "ms": round(1e3 * call.seconds, 3),
        "waited_ms": round(1e3 * call.waited_s, 3),
        "caller": call.caller.name if call.caller else "",
        "tenant": call.caller.tenant if call.caller else "",
        "peer": call.context.peer(),
        "request_id": call.request_id,
        "request_bytes": call.request_bytes,
        "response_bytes": call.response_bytes,
    }
    if call.reason:
        line["reason"] = call.reason
    if call.cached:
        line["cached"] = True
    calls.info("call", extra={"line": line})


class Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": moment(record.created), "level": record.levelname.lower(), "message": record.getMessage()}
        line.update(getattr(record, "line", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        words = " ".join(f"{key}={value}" for key, value in getattr(record, "line", {}).items() if value != "")
        text = f"{moment(record.created)} {record.levelname.lower()} {record.getMessage()} {words}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
