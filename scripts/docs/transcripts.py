"""Transcripts of README.md and docs/*.md, from real runs, so that no command and no figure is made up.

A transcript is a block ```console whose first line is `$ tilewise ...`; all that follows it is replaced by what the command
prints. Commands run in the repository's root, in this process.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

from tilewise.client.cli import main as tilewise

ROOT = Path(__file__).resolve().parents[2]
TRANSCRIPT = re.compile(r"```console\n\$ tilewise (?P<arguments>[^\n]*(?:\\\n[^\n]*)*)\n.*?```", re.DOTALL)


def updated(text: str) -> str:
    """A page with every transcript as a run gives it now."""
    return TRANSCRIPT.sub(transcript, text)


def transcript(match: re.Match[str]) -> str:
    arguments = match["arguments"]
    return f"```console\n$ tilewise {arguments}\n{output(shlex.split(arguments))}```"


def output(arguments: list[str]) -> str:
    """What a command prints to standard output; it must succeed."""
    printed = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(printed):
        try:
            tilewise(arguments)
        except SystemExit as end:
            if end.code:
                raise
    return printed.getvalue()
