"""tilewise explain: what a code or a term means."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

import click

from tilewise.client.cli.options import output_option, write
from tilewise.hwdb.errors import NotFound


@cache
def entries() -> dict[str, str]:
    """Every code and term with its explanation."""
    text = files("tilewise.client").joinpath("explanations.toml").read_text(encoding="utf-8")
    terms = {term: meaning for section in tomllib.loads(text).values() for term, meaning in section.items()}
    rules = tomllib.loads(files("tilewise.server").joinpath("gate/rules.toml").read_text(encoding="utf-8"))
    return terms | {
        code: f"{rule['name']} ({rule['severity']}). {rule['explanation'].strip()}" for code, rule in rules.items()
    }


@click.command()
@click.argument("code", required=False)
@output_option
def explain(code: str | None, output: str | None) -> None:
    """Say what CODE means: the reason of an error, a rule of the gate, a wall, a convention, a term. Without CODE, list them all."""
    if code is None:
        write("\n".join(entries()) + "\n", output)
    else:
        write(f"{meaning(code).strip()}\n", output)


def meaning(code: str) -> str:
    """The explanation of a code in any case. Raises NotFound with the closest one."""
    by_lower = {term.lower(): text for term, text in entries().items()}
    if code.lower() in by_lower:
        return by_lower[code.lower()]
    near = get_close_matches(code.lower(), by_lower, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise NotFound(
        f"{code!r} is no code or term known here{hint}",
        reason="UNKNOWN_CODE",
        field="code",
        hint="`tilewise explain` lists all",
    )
