"""A torch module's step as an answer of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotAvailable
from tilewise.server.messages.question import workload_of
from tilewise.server.messages.report import table_message
from tilewise.server.step.predict import predict_table
from tilewise.v1.advisor_service_pb2 import PredictResponse
from tilewise.v1.workload_pb2 import STACK_TRANSFORMERS, Workload


def traced(
    module: Any, inputs: Sequence[Any], named: Mapping[str, Any], gpu: str, calibration: str, asked: Workload
) -> PredictResponse:
    """Raises NotAvailable without torch, and as tilewise.server.trace.trace does."""
    try:
        from tilewise.server.trace import trace
    except ImportError as error:
        message = f"tracing a module needs {error.name}: pip install 'tilewise[trace]'"
        raise NotAvailable(message, reason="EXTRA_MISSING") from error
    if not asked.stack:
        asked.stack = STACK_TRANSFORMERS  # a module runs as torch runs it, whatever the phase
    card, work = Database.packaged().gpu(gpu, calibration), workload_of(asked)
    table = trace(module, *inputs, train=work.phase == "train", optimizer=work.optimizer, **named)
    return table_message(predict_table(card, table, work), card, work, type(module).__name__)
