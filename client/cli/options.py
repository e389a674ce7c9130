"""Options that commands share. Every option may come from the environment as TILEWISE_<NAME>; the flag wins."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """click.option with its twin in the environment, shown in the help."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "TILEWISE_" + long.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, show_envvar=True, **settings)


output_option = option("-o", "--output", type=click.Path(dir_okay=False), help="Write the answer to a file.")


def server_option(command: Command, *, about: str = "", **settings: Any) -> Command:
    """Which server is asked, and whose certificates it shows."""
    told = about or "Ask this server (token from TILEWISE_TOKEN); unset: answer in this process."
    asked = option("--server", metavar="HOST[:PORT]", help=told, **settings)(command)
    return option(
        "--ca", metavar="FILE", type=click.Path(exists=True, dir_okay=False), expose_value=False, callback=_trusted,
        help="PEM of the authority that signed the server's certificate; unset: those of the system.",
    )(asked)  # fmt: skip


def _trusted(context: click.Context, parameter: click.Parameter, file: str | None) -> None:
    """Where tilewise.client.access looks."""
    if file is not None:
        os.environ["TILEWISE_CA"] = file


set_option = click.option(
    "--set", "overrides", multiple=True, metavar="NAME=SIZE", help="Replace a size, as hidden_size=4096."
)
defaults_option = option(
    "--allow-defaults/--no-allow-defaults", default=False, help="Take sizes that CONFIG leaves out from its class."
)

as_option = option("--as", "family", default="", metavar="FAMILY", help="Read the config as one of this family.")


def model_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """CONFIG, the one model that is asked about."""
    return click.argument("config", type=click.Path(allow_dash=True), required=required)


def gpu_option(about: str, metavar: str = "SKU[,SKU]") -> Callable[[Command], Command]:
    return option("--gpu", required=True, metavar=metavar, help=about)


def comma_separated(text: str) -> list[str]:
    """ "h100-sxm5-80gb, mi300x" -> both."""
    return [name.strip() for name in text.split(",")]


def form_option(forms: Sequence[str] = ("text", "json")) -> Callable[[Command], Command]:
    return option("--format", "form", type=click.Choice(forms), default=forms[0], help="Form of the answer.")


def asking(command: Command, forms: Sequence[str] = ("text", "json")) -> Command:
    """The options of every command that asks a question: where, in which form, and where the answer goes."""
    return server_option(form_option(forms)(output_option(command)))


def judging(command: Command) -> Command:
    """What is judged, and by which budgets."""
    about = "The budgets; unset: tilewise.toml here or in the nearest folder above."
    judged = click.argument("configs", nargs=-1, metavar="[CONFIG]...", type=click.Path())
    return judged(option("--policy", metavar="FILE", help=about)(command))


def write(answer: str, output: str | None) -> None:
    """Write an answer to stdout, or to a file."""
    if output is None:
        click.echo(answer, nl=False)
    else:
        with open(output, "w", encoding="utf-8") as file:
            file.write(answer)
