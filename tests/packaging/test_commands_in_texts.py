"""Every `tilewise ...` command that a text shows is one that the command line takes: commands, options and choices."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tilewise.client.cli import cli

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".py", ".toml", ".yml", ".yaml", ".proto", ".sh", ".html"}
FOLDERS = ("docs", "examples", "deploy", "scripts", "proto", "hwdb", "server", "client", "calibration", ".ci")
FILES = sorted(
    [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.suffix in SUFFIXES or path.name == "run"]
    + [path for path in ROOT.iterdir() if path.is_file() and path.suffix in SUFFIXES]
)
CALLED = r"tilewise [a-z-]"
# Inline in prose, also over a line's end; and a line of a block, after a prompt or behind other commands.
INLINE = re.compile(rf"(?<!`)`((?:torchrun [^`]*?-m |python3? -m )?{CALLED}[^`]*)`(?!`)")
LINE = re.compile(rf"^(?:    |\t|\$ |- )(?:\$ )?((?:[^`#\n]* )?{CALLED}(?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
FENCED = re.compile(r"^```(?:sh|console|bash|text)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
STOPS = re.compile(r"[|&;<>].*|#.*|\d>>?")
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_.:,-]*|.*(\.\.\.|\$|[{}<>%]).*")


def commands(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    found = [match[1] for match in INLINE.finditer(text)]
    if path.suffix in (".md", ".yml", ".yaml", ".sh", ""):
        block = "\n".join(f"    {line}" for match in FENCED.finditer(text) for line in match[1].splitlines())
        found += [match[1] for match in LINE.finditer(f"{text}\n{block}")]
    elif path.suffix == ".py":
        found += [match[1] for match in LINE.finditer(text) if match[1].startswith(("tilewise ", "torchrun "))]
    for each in found:
        for part in re.split(r"&&|;", each.replace("\\\n", " ")):
            start = re.search(CALLED, part)
            if start:
                yield " ".join(part[start.start() :].split())


SHOWN = sorted({(path.relative_to(ROOT).as_posix(), command) for path in FILES for command in commands(path)})


def words(command: str) -> list[str]:
    """The arguments, up to a pipe or a comment; nothing for an ellipsis."""
    try:
        parts = shlex.split(command, comments=True)[1:]
    except ValueError:  # an apostrophe in prose
        parts = command.split()[1:]
    end = next((place for place, part in enumerate(parts) if STOPS.fullmatch(part)), len(parts))
    return [part.strip("[]") for part in parts[:end] if part.strip("[].,;:…")]


def complaint(group: click.Group, arguments: list[str]) -> str:
    """What is wrong with a command, empty where nothing is. Nothing runs, no file is opened."""
    command: click.Command = group
    context = click.Context(group)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        if PLACEHOLDER.fullmatch(arguments[0]):
            return ""
        found = command.get_command(context, arguments[0])
        if found is None:
            return f"no command {arguments[0]}"
        command, context, arguments = found, click.Context(found, parent=context), arguments[1:]
    try:
        values, extra, _ = command.make_parser(context).parse_args(list(arguments))
    except click.BadOptionUsage as error:
        return "" if error.option_name == arguments[-1] else error.format_message()  # prose names an option by itself
    except click.UsageError as error:
        return error.format_message()
    if extra:
        return f"too many arguments: {extra}"
    return next(filter(None, (wrong(parameter, values.get(parameter.name or "")) for parameter in command.params)), "")


def wrong(parameter: click.Parameter, value: object) -> str:
    """A value that is no choice or no number; placeholders and files are not looked at."""
    if not isinstance(parameter.type, click.Choice | click.types.IntParamType | click.types.FloatParamType):
        return ""
    for one in value if isinstance(value, list | tuple) else [value]:
        for alternative in str(one).split("|"):
            if isinstance(one, str) and not PLACEHOLDER.fullmatch(alternative):
                try:
                    parameter.type.convert(alternative, parameter, None)
                except click.UsageError as error:
                    return error.format_message()
    return ""


@pytest.mark.parametrize(("where", "command"), SHOWN)
def test_a_command_that_a_text_shows_is_one_that_there_is(where: str, command: str) -> None:
    assert complaint(cli, words(command)) == "", f"{where}: {command}"


def test_no_text_starts_a_module_that_is_no_program() -> None:
    for path in FILES:
        assert not re.search(r"-m tilewise\.", path.read_text(encoding="utf-8")), path.name


def test_every_page_that_shows_commands_is_searched() -> None:
    pages = {where for where, _ in SHOWN}
    assert {
        "README.md",
        "docs/operations.md",
        "docs/new-gpu.md",
        "docs/gate.md",
        "examples/gate/gitlab-ci.yml",
    } <= pages
    assert any(command.startswith("tilewise serve --address 0.0.0.0:7337 --tls-cert") for _, command in SHOWN)


@pytest.mark.parametrize(
    "command",
    [
        "tilewise predicts x",
        "tilewise predict x --gpus y",
        "tilewise predict x --phase training",
        "tilewise predict x --batch many",
        "tilewise calibrate compare a b c",
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    assert complaint(cli, words(command))
