"""What scripts depend on is frozen: commands with their options, and the keys of JSON answers.

Whoever changes it changes the snapshot too, by running this file: python tests/contract/test_surface.py
"""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tilewise.client.cli import cli, main

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).parent / "surface.txt"
EXAMPLE = str(ROOT / "examples" / "llama-3-8b.json")
NEOX = str(ROOT / "examples" / "gpt-neox-2.7b.json")
ANSWERS = {
    "check": ("check", "--policy", str(ROOT / "examples" / "gate" / "tilewise.toml"), "--base-file", NEOX),
    "predict": ("predict", EXAMPLE, "--gpu", "h100-sxm5-80gb", "--phase", "train", "--seq", "4096"),
    "recommend": (
        "recommend",
        EXAMPLE,
        "--gpu",
        "h100-sxm5-80gb",
        "--phase",
        "train",
        "--seq",
        "4096",
        "--mode",
        "compiled",
    ),
    "sweep": (
        "sweep",
        EXAMPLE,
        "--gpu",
        "h100-sxm5-80gb",
        "--phase",
        "train",
        "--seq",
        "4096",
        "--vary",
        "intermediate_size=14336:14340",
    ),
    "gpus list": ("gpus", "list"),
    "gpus show": ("gpus", "show", "mi300x"),
    "mfu": ("mfu", "--gpu", "h100-sxm5-80gb", "--tflops", "480"),
}


def test_commands_options_and_json_keys_are_those_of_the_snapshot() -> None:
    committed = set(SNAPSHOT.read_text().splitlines())
    now = set(surface())
    assert sorted(committed - now) == [], "gone: scripts that use it break"
    assert sorted(now - committed) == [], "new: add it to the snapshot"


def surface() -> list[str]:
    lines = [line for name in cli.list_commands(context()) for line in options(name, command(name))]
    return sorted(lines + [f"{name} --format json: {key}" for name in ANSWERS for key in set(keys(answer(name)))])


def context() -> click.Context:
    return click.Context(cli)


def command(name: str) -> click.Command:
    found = cli.get_command(context(), name)
    assert found is not None
    return found


def options(name: str, command: click.Command) -> Iterator[str]:
    """One line an option or argument, of sub-commands too."""
    if isinstance(command, click.Group):
        for each, inner in command.commands.items():
            yield from options(f"{name} {each}", inner)
        return
    for parameter in command.params:
        shown = "/".join([*parameter.opts, *parameter.secondary_opts])
        yield f"{name}: {shown if isinstance(parameter, click.Option) else parameter.human_readable_name}"


def answer(name: str) -> Any:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*ANSWERS[name], "--format", "json"])
    return json.loads(printed.getvalue())


def keys(data: Any, path: str = "") -> Iterator[str]:
    """Paths of all keys; elements of lists share a path, and words that are data (sums by part) are left out."""
    if isinstance(data, list):
        for item in data:
            yield from keys(item, f"{path}[]")
    elif isinstance(data, dict) and not path.endswith(("_by_part", "calibrations")):
        for key, value in data.items():
            yield from keys(value, f"{path}.{key}".lstrip("."))
    else:
        yield path


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(surface()) + "\n")
