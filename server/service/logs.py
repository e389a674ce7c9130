"""Log lines on stderr: one a call, and the few of the process, as JSON or as text."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

from tilewise.hwdb.texts import printable
from tilewise.server.service.rpc.call import Call

calls = logging.getLogger("tilewise.calls")
DENIED = ("UNAUTHENTICATED", "PERMISSION_DENIED")
OVER = ("OVERLOADED", "OVER_QUOTA", "STALLED")
PER_S = 20


def set_up(form: str) -> None:
    """form: json, text or none."""
    root = logging.getLogger("tilewise")
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr) if form != "none" else logging.NullHandler()
    handler.setFormatter(Json() if form == "json" else Text())
    root.addHandler(handler)
    root.setLevel(logging.INFO if form != "none" else logging.CRITICAL)
    root.propagate = False


class Sample:
    """Which of the lines on refusals are written: PER_S a second, so that whoever is refused cannot fill a disk."""

    def __init__(self) -> None:
        self._lock, self._second, self._written, self._left_out = threading.Lock(), 0, 0, 0

    def left_out(self) -> int | None:
        """How many were left out since the last line; None: this one is to be left out too."""
        with self._lock:
            if int(time.monotonic()) != self._second:
                self._second, self._written = int(time.monotonic()), 0
            if self._written >= PER_S:
                self._left_out += 1
                return None
            self._written += 1
            found, self._left_out = self._left_out, 0
            return found


_refusals = Sample()


def log_call(call: Call) -> None:
    """An Observer: one line a call, but for probes that succeed and refusals beyond PER_S. Never what was asked: shapes are secrets
    too. `audit` marks what changed something, and who was denied."""
    denied = call.code in DENIED
    left_out = _refusals.left_out() if denied or call.reason in OVER else 0
    if not calls.isEnabledFor(logging.INFO) or left_out is None or (call.method.open and not call.reason):
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
    if denied or (call.code == "OK" and call.method.changes):
        line["audit"] = "denied" if denied else "changed"
    if left_out:
        line["left_out"] = left_out
    calls.info("call", extra={"line": line})


class Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": moment(record.created), "level": record.levelname.lower(), "message": record.getMessage()}
        line.update(getattr(record, "line", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        words = " ".join(
            f"{key}={printable(str(value))}" for key, value in getattr(record, "line", {}).items() if value != ""
        )
        text = f"{moment(record.created)} {record.levelname.lower()} {record.getMessage()} {words}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
