"""What a request asks: its model as text and sizes, its workload."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.gpu import Gpu
from tilewise.server import stacks
from tilewise.server.advise.subject import Subject
from tilewise.server.architecture.stated import check_stated
from tilewise.server.messages.words import filled, plain
from tilewise.server.stacks import Stack
from tilewise.server.workload import Workload
from tilewise.v1 import model_pb2, workload_pb2

LARGEST_GPUS = 32


def text_of(model: model_pb2.Model) -> str:
    """The text of a model's shape. Raises InvalidInput where there is none, or where it leaves its shape to defaults."""
    if model.WhichOneof("source") is None:
        message = "the model has no text: config_json or shape_toml is needed"
        raise InvalidInput(message, reason="FIELD_REQUIRED", field="model")
    text = model.config_json or model.shape_toml
    if not model.allow_defaults:
        check_stated(text, model.overrides)
    return text


def workload_of(message: workload_pb2.Workload) -> Workload:
    """The Workload of a message; what it leaves unset is left to Workload's own defaults."""
    if not message.phase:
        raise InvalidInput(
            "phase is required: train, prefill or decode", reason="FIELD_REQUIRED", field="workload.phase"
        )
    said = plain(message)
    for name in stacks.RETIRED:
        if name in said:
            raise InvalidInput(stacks.renamed(name, said[name]), reason="INVALID_WORKLOAD", field=f"workload.{name}")
    return Workload(**said)


def program_of(message: workload_pb2.Workload) -> Stack:
    """The stack that will run a workload, whether the message names it or not."""
    said = plain(message)
    usual = stacks.default(said.get("phase", ""), said.get("mode", ""), said.get("attention_backend", "auto"))
    return stacks.stack(said.get("stack", usual))


def workload_message(workload: Workload) -> workload_pb2.Workload:
    """A workload with every default filled in."""
    return filled(workload_pb2.Workload, asdict(workload))


def gpus_of(names: Sequence[str], database: Database) -> list[Gpu]:
    """The GPUs of a request that asks for several. Raises InvalidInput where there are none or too many."""
    if not 1 <= len(names) <= LARGEST_GPUS:
        raise InvalidInput(f"{len(names)} GPUs: 1 to {LARGEST_GPUS} are needed", reason="FIELD_REQUIRED", field="gpus")
    return [database.gpu(name) for name in names]


def subject_of(model: model_pb2.Model) -> Subject:
    """The model whose shape is looked around."""
    return Subject(text_of(model), dict(model.overrides), model.name)
