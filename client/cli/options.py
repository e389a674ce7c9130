"""Options that commands share. Every option may come from the environment as TILEWISE_<NAME>; the flag wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """click.option with its twin in the environment, shown in the help."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "TILEWISE_" + long.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, show_envvar=True, **settings)


def asking(command: Command) -> Command:
    """The options of every command that asks a question: where, in which form, and where the answer goes."""
    for add in (
        option("-o", "--output", type=click.Path(dir_okay=False), help="Write the answer to a file."),
        option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."),
        option("--server", metavar="HOST:PORT", help="Ask this server; unset: answer in this process."),
    ):
        command = add(command)
    return command


def write(answer: str, output: str | None) -> None:
    """Write an answer to stdout, or to a file."""
    if output is None:
        click.echo(answer, nl=False)
    else:
        with open(output, "w", encoding="utf-8") as file:
            file.write(answer)


def words(enum: Any) -> list[str]:
    """The words of an enum of the contract: PHASE_TRAIN -> "train"; its unspecified value left out."""
    prefix = enum.DESCRIPTOR.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return [name.removeprefix(prefix).lower() for name in list(enum.keys())[1:]]


def number(enum: Any, word: str | None) -> Any:
    """The enum's number of a word; unspecified (0) where there is none."""
    prefix = enum.DESCRIPTOR.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return enum.Value(prefix + word.upper()) if word else 0
