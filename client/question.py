"""What a person asks as a message of the contract: files, plain values and words; each fault is one clear line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from tilewise.hwdb.errors import InvalidInput, TooLarge, choice, unknown
from tilewise.server import stacks
from tilewise.server.messages import words
from tilewise.v1.advice_pb2 import Axis
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import Workload

LARGEST_BYTES = 4 << 20  # the contract's limit; a real config.json has at most a tenth of a megabyte
LARGEST_SIZE = (1 << 40) - 1  # the contract's limit of a size
Asked = TypeVar("Asked", bound=Message)


class Configuration(Protocol):
    """What transformers' PretrainedConfig is, among others."""

    def to_dict(self) -> dict[str, Any]: ...


Config = str | os.PathLike[str] | Mapping[str, Any] | Configuration


def axes_of(vary: Mapping[str, Iterable[int]]) -> list[Axis]:
    """What a sweep varies: the values of each size. Raises InvalidInput."""
    return [
        Axis(field=name, values=[whole(f"vary[{name!r}]", each) for each in items(f"vary[{name!r}]", values)])
        for name, values in pairs("vary", vary)
    ]


def model_of(config: Config, overrides: Mapping[str, int] | None = None, *, allow_defaults: bool = False) -> Model:
    """The model in a config.json, a shape TOML, "-" for stdin, a dict or a transformers config. Raises InvalidInput, TooLarge."""
    sizes = {name: whole(f"overrides[{name!r}]", size) for name, size in pairs("overrides", overrides or {})}
    if isinstance(config, str | os.PathLike):
        return read_model(os.fspath(config), sizes, allow_defaults)
    data = config if isinstance(config, Mapping) else getattr(config, "to_dict", lambda: None)()
    if not isinstance(data, Mapping):
        message = f"config must be a path, a dict or a transformers config, not {type(config).__name__}"
        raise InvalidInput(message, reason="UNREADABLE_CONFIG", field="config")
    text = json.dumps(dict(data), default=str)
    return Model(config_json=text, overrides=sizes, allow_defaults=allow_defaults)


def read_model(path: str, sizes: Mapping[str, int], allow_defaults: bool) -> Model:
    """The model in a file, or in stdin for "-"."""
    text = read_text(path)
    model = Model(name="stdin" if path == "-" else path, overrides=sizes, allow_defaults=allow_defaults)
    if path.endswith(".toml") or (path == "-" and not text.lstrip().startswith(("{", "["))):
        model.shape_toml = text
    else:
        model.config_json = text
    return model


def read_text(path: str) -> str:
    """A file's text, or stdin's for "-". Raises InvalidInput for what is no file or no text, TooLarge beyond 4 MiB."""
    try:
        raw = sys.stdin.buffer.read(LARGEST_BYTES + 1) if path == "-" else read_bytes(path)
        if len(raw) <= LARGEST_BYTES:
            return raw.decode("utf-8-sig")
    except IsADirectoryError as error:
        raise _unreadable(f"{path} is a folder; a config.json is needed") from error
    except OSError as error:
        raise _unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise _unreadable(f"{path} is no UTF-8 text") from error
    limit = f"{LARGEST_BYTES >> 20} MiB"
    raise TooLarge(f"{path} is larger than {limit}; at most {limit} is read", reason="CONFIG_TOO_LARGE", field="config")


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(LARGEST_BYTES + 1)


def _unreadable(message: str) -> InvalidInput:
    return InvalidInput(message, reason="UNREADABLE_CONFIG", field="config")


def workload_of(given: Mapping[str, Any]) -> Workload:
    """The Workload that keywords describe. Raises InvalidInput, with the nearest keyword or word where there is one."""
    if not given.get("phase"):
        raise InvalidInput(
            "phase is required: train, prefill or decode", reason="FIELD_REQUIRED", field="workload.phase"
        )
    for name in stacks.RETIRED:
        if name in given:
            raise _invalid(name, stacks.renamed(name, given[name]))
    check_sizes(given)
    return message_of(Workload, given)


def check_sizes(given: Mapping[str, Any]) -> None:
    """Raises InvalidInput for a size of a workload that is stated and below 1: in the contract 0 means that it is left out."""
    for name, field in words.living(Workload.DESCRIPTOR).items():
        value = given.get(name)
        if words.type_of(field) is int and isinstance(value, int) and value < 1:
            raise _invalid(name, f"{name} {value} is out of range: 1 to {LARGEST_SIZE}")


def message_of(kind: type[Asked], given: Mapping[str, Any]) -> Asked:
    """A message of the contract from its fields by name: enums as words, None for what is left unset."""
    known = words.living(kind.DESCRIPTOR)
    for name in given:
        if name not in known:
            raise _invalid(name, f"{name!r} is no keyword here: {choice(name, known)}")
    return kind(**{name: value_of(known[name], value) for name, value in given.items() if value is not None})


def value_of(field: Any, value: Any) -> Any:
    """A plain value as a field of the contract holds it."""
    return [single(field, each) for each in items(field.name, value)] if field.is_repeated else single(field, value)


def items(name: str, value: Any) -> Iterable[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _invalid(name, f"{name} must be a list, got {value!r}")
    return value


def pairs(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _invalid(name, f"{name} must be a dict by size, got {value!r}")
    return value.items()


def single(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return number(field.name, field.enum_type, value)
    if field.cpp_type == field.CPPTYPE_DOUBLE:
        return real(field.name, value)
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_INT32):
        return whole(field.name, value)
    return value


def number(name: str, enum: Any, value: Any) -> int:
    """The number of an enum's word."""
    if not isinstance(value, str) or not value:
        raise _invalid(name, unknown(name, value, words.words(enum)))
    try:
        return int(words.number(enum, value, name))
    except InvalidInput as error:
        raise _invalid(name, str(error)) from None


def whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _invalid(name, f"{name} must be a whole number, got {value!r}")
    if abs(int(value)) > LARGEST_SIZE:
        raise _invalid(name, f"{name} {value} is out of range: 1 to {LARGEST_SIZE}")
    return int(value)


def real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _invalid(name, f"{name} must be a number, got {value!r}")
    return float(value)


def names_of(gpu: object) -> list[str]:
    """One SKU, or several in a list. Raises InvalidInput."""
    names = [gpu] if isinstance(gpu, str) else list(gpu) if isinstance(gpu, list | tuple) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"gpu must be a SKU or a list of SKUs, got {gpu!r}", reason="FIELD_REQUIRED", field="gpu")
    return [name for name in names if isinstance(name, str)]


def _invalid(name: str, message: str) -> InvalidInput:
    return InvalidInput(message, reason="INVALID_WORKLOAD", field=f"workload.{name}")
