"""Reading a model from a file or stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from tilewise.hwdb.errors import InvalidInput, TooLarge
from tilewise.v1.model_pb2 import Model

LARGEST_BYTES = 4 << 20  # the contract's limit; a real config.json has at most a tenth of a megabyte


def read_model(path: str, overrides: Iterable[str] = ()) -> Model:
    """The model in a config.json or a shape TOML; "-" is stdin. Raises InvalidInput and TooLarge."""
    text = read_text(path)
    model = Model(name="stdin" if path == "-" else path, overrides=dict(map(size, overrides)))
    if path.endswith(".toml") or (path == "-" and not text.lstrip().startswith(("{", "["))):
        model.shape_toml = text
    else:
        model.config_json = text
    return model


def read_text(path: str) -> str:
    """A file's text, or stdin's for "-". Raises InvalidInput for what is no text, TooLarge beyond 4 MiB."""
    if path != "-" and os.path.isdir(path):
        raise InvalidInput(f"{path} is a folder; a config.json is needed", reason="UNREADABLE_CONFIG", field="config")
    if path == "-":
        raw = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    else:
        with open(path, "rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    if len(raw) > LARGEST_BYTES:
        limit = f"{LARGEST_BYTES >> 20} MiB"
        raise TooLarge(
            f"{path} is larger than {limit}; at most {limit} is read", reason="CONFIG_TOO_LARGE", field="config"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is no UTF-8 text", reason="UNREADABLE_CONFIG", field="config") from error


def read_table(path: Path) -> str:
    """The text of a measured table. Raises InvalidInput for what is no text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is no UTF-8 text", reason="BAD_TABLE", field="table") from error


def size(assignment: str) -> tuple[str, int]:
    """ "hidden_size=4096" -> ("hidden_size", 4096)."""
    name, separator, value = assignment.partition("=")
    if not separator or not value.strip().lstrip("-").isdecimal():
        raise click.BadParameter(
            f"{assignment!r} must have the form NAME=SIZE, as hidden_size=4096", param_hint="--set"
        )
    if abs(int(value)) >= 1 << 40:
        raise click.BadParameter(f"{assignment!r} is out of range: 1 to {(1 << 40) - 1}", param_hint="--set")
    return name.strip(), int(value)
