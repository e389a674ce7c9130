"""Reading a model from a file or stdin."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from tilewise.hwdb.errors import InvalidInput
from tilewise.v1.model_pb2 import Model


def read_model(path: str, overrides: Iterable[str] = (), *, allow_defaults: bool = False, family: str = "") -> Model:
    """The model in a config.json or a shape TOML; "-" is stdin; family: to read it as. Raises InvalidInput and TooLarge."""
    from tilewise.client.question import model_of  # not for a wrong option

    model = model_of(path, dict(map(size, overrides)), allow_defaults=allow_defaults)
    if family:
        model.config_json = _read_as(model.config_json, family)
    return model


def _read_as(text: str, family: str) -> str:
    """A config.json that names the family to read it as."""
    from tilewise.server.architecture.stand_in import READ_AS

    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise click.BadParameter("only a config.json can be read as one of another family", param_hint="--as")
    return json.dumps({**config, READ_AS: family})


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
