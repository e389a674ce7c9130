"""What a request asks: its model as text and sizes, its workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.subject import Subject
from tilewise.server.messages.enums import number, word
from tilewise.server.workload import Workload
from tilewise.v1 import model_pb2, workload_pb2

ENUMS: dict[str, Any] = {
    "phase": workload_pb2.Phase,
    "precision": workload_pb2.Precision,
    "mode": workload_pb2.Mode,
    "recompute": workload_pb2.Recompute,
    "optimizer": workload_pb2.Optimizer,
    "state": workload_pb2.State,
    "logits": workload_pb2.Logits,
    "attention_backend": workload_pb2.AttentionBackend,
    "cache": workload_pb2.Cache,
    "engine": workload_pb2.Engine,
    "kv_cache": workload_pb2.KvCache,
}
LARGEST_GPUS = 32
SIZES = ("batch", "sequence", "context", "tensor_parallel", "expert_skew", "expert_parallel")


def text_of(model: model_pb2.Model) -> str:
    """The text of a model's shape. Raises InvalidInput where there is none."""
    if model.WhichOneof("source") is None:
        message = "the model has no text: config_json or shape_toml is needed"
        raise InvalidInput(message, reason="FIELD_REQUIRED", field="model")
    return model.config_json or model.shape_toml


def workload_of(message: workload_pb2.Workload) -> Workload:
    """The Workload of a message; what it leaves unset is left to Workload's own defaults."""
    if not message.phase:
        raise InvalidInput(
            "phase is required: train, prefill or decode", reason="FIELD_REQUIRED", field="workload.phase"
        )
    words = {name: word(enum, getattr(message, name), f"workload.{name}") for name, enum in ENUMS.items()}
    sizes = {name: getattr(message, name) for name in SIZES}
    given: dict[str, Any] = {name: value for name, value in {**words, **sizes}.items() if value}
    return Workload(**given)


def workload_message(workload: Workload) -> workload_pb2.Workload:
    """A workload with every default filled in."""
    words = {name: number(enum, getattr(workload, name)) for name, enum in ENUMS.items()}
    return workload_pb2.Workload(**words, **{name: getattr(workload, name) for name in SIZES})


def gpus_of(names: Sequence[str], database: Database) -> list[Gpu]:
    """The GPUs of a request that asks for several. Raises InvalidInput where there are none or too many."""
    if not 1 <= len(names) <= LARGEST_GPUS:
        raise InvalidInput(f"{len(names)} GPUs: 1 to {LARGEST_GPUS} are needed", reason="FIELD_REQUIRED", field="gpus")
    return [database.gpu(name) for name in names]


def subject_of(model: model_pb2.Model) -> Subject:
    """The model whose shape is looked around."""
    return Subject(text_of(model), dict(model.overrides), model.name)
