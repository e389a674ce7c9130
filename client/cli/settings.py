"""The settings of a server as options: flag, then environment, then the file of --config, then the default."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from tilewise.client.cli.options import option
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.texts import without_password
from tilewise.server.service.settings import settings_fields

Command = TypeVar("Command", bound=Callable[..., Any])
SOURCES = {"COMMANDLINE": "flag", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file", "DEFAULT": "default"}


def server_settings(command: Command) -> Command:
    """An option for each field of Settings, and --config."""
    for field in reversed(settings_fields()):
        command = setting_option(field)(command)
    return option(
        "--config", type=click.Path(dir_okay=False, path_type=Path), is_eager=True, expose_value=False,
        callback=read_file, help="TOML file of settings: their names with _ for -, such as metrics_address.",
    )(command)  # fmt: skip


def setting_option(field: Any) -> Callable[[Command], Command]:
    name, about = "--" + field.name.replace("_", "-"), field.metadata
    if isinstance(field.default, bool):
        flag = f"{name}/--no-{name[2:]}" if field.default else name
        return option(flag, field.name, is_flag=True, default=field.default, help=about["help"])
    return option(
        name, type=type(field.default), default=field.default, show_default=field.default != "",
        metavar=about["metavar"], help=about["help"], callback=not_in_argument if about["secret"] else None,
    )  # fmt: skip


def not_in_argument(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Raises InvalidInput (PASSWORD_IN_ARGUMENT): every user of a machine sees the arguments of its processes."""
    if source_of(context, str(parameter.name)) == "flag" and without_password(value) != value:
        variable = f"TILEWISE_{str(parameter.name).upper()}"
        message = f"{parameter.opts[0]} holds a password, which every user of the machine could see: use {variable}, or a file of it"
        raise InvalidInput(message, reason="PASSWORD_IN_ARGUMENT", field=parameter.name or "")
    return value


def read_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make the file's settings the defaults. Raises InvalidInput (BAD_SETTINGS_FILE), naming the nearest key."""
    if path is None:
        return
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"{path} is no TOML: {error}", reason="BAD_SETTINGS_FILE") from error
    known = {field.name: type(field.default) for field in settings_fields()}
    for key, value in found.items():
        if key not in known:
            near = get_close_matches(key, known, 1, 0.0)[0]
            raise InvalidInput(f"{path}: unknown setting {key!r}; nearest: {near}", reason="BAD_SETTINGS_FILE")
        if not isinstance(value, known[key]) and not (known[key] is float and type(value) is int):
            message = f"{path}: {key} must be of type {known[key].__name__}, not {type(value).__name__}"
            raise InvalidInput(message, reason="BAD_SETTINGS_FILE")
    context.default_map = found


def source_of(context: click.Context, name: str) -> str:
    """Where a setting's value comes from: flag, environment, file or default."""
    source = context.get_parameter_source(name)
    return SOURCES[source.name] if source is not None else "default"
