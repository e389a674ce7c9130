"""tilewise completion: commands and options completed by the shell."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

# Where each shell looks for a user's completions; zsh only where `fpath` of ~/.zshrc names the folder.
HOMES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/tilewise"),
    "zsh": ("ZDOTDIR", "", ".zfunc/_tilewise"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/tilewise.fish"),
}


@click.command()
@click.argument("shell", type=click.Choice(list(HOMES)))
@click.option("--install", is_flag=True, help="Write it where SHELL looks for it; unset: print it.")
def completion(shell: str, install: bool) -> None:
    """Print what lets SHELL complete commands and options, or --install it for this user.

    zsh finds it where ~/.zshrc says fpath+=~/.zfunc before compinit.
    """
    text = script(shell)
    if not install:
        click.echo(text)
        return
    path = home(shell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    click.echo(f"{path}: a new {shell} completes tilewise")


def script(shell: str) -> str:
    from tilewise.client.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(cli, {}, "tilewise", "_TILEWISE_COMPLETE").source().strip()


def home(shell: str) -> Path:
    variable, default, file = HOMES[shell]
    return Path(os.environ.get(variable) or Path.home() / default) / file
