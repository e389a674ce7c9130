"""tilewise explain: what a code or a term means."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from textwrap import shorten

import click

from tilewise.client.cli.options import output_option, write
from tilewise.hwdb import packaged
from tilewise.hwdb.errors import NotFound

GROUPS = {
    "terms": "Words that answers use",
    "walls": "What bounds an operator",
    "mfu": "Utilisation and its conventions",
    "causes": "Causes of advice",
    "rules": "Rules of the gate",
    "reasons": "Reasons of errors",
}
WIDTH = 118


@cache
def groups() -> dict[str, dict[str, str]]:
    """Codes and terms with their explanations, by the groups of GROUPS."""
    text = packaged.text("tilewise.client", "explanations.toml")
    rules = packaged.toml("tilewise.server", "gate/rules.toml")
    told = {code: f"{rule['name']} ({rule['severity']}). {rule['explanation'].strip()}" for code, rule in rules.items()}
    known = tomllib.loads(text) | {"rules": told}
    return {group: known[group] for group in GROUPS}


@cache
def entries() -> dict[str, str]:
    """Every code and term with its explanation."""
    return {term: meaning for group in reversed(groups().values()) for term, meaning in group.items()}


@click.command()
@click.argument("code", required=False)
@output_option
def explain(code: str | None, output: str | None) -> None:
    """Say what CODE means: the reason of an error, a rule of the gate, a wall, a convention, a term. Without CODE, list them all."""
    write(listing() if code is None else f"{meaning(code).strip()}\n", output)


def listing() -> str:
    """A line for each entry, by group."""
    return "\n".join(f"{title}\n{lines(groups()[group])}" for group, title in GROUPS.items())


def lines(known: Mapping[str, str]) -> str:
    width = max(map(len, known))
    told = ((term, " ".join(meaning.split())) for term, meaning in known.items())
    return "".join(
        f"  {term:<{width}}  {shorten(meaning, WIDTH - width, placeholder=' ...')}\n" for term, meaning in told
    )


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
