"""Write the transcripts of the README and of the pages from real runs, so that no command and no figure is made up.

    python scripts/update_readme.py            write README.md and docs/*.md anew
    python scripts/update_readme.py --check    exit 1 where one of them is not what a run gives

A transcript is a block ```console whose first line is `$ tilewise ...`; all that follows it is replaced by what the command
prints. Commands run in the repository's root, in this process.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

from tilewise.client.cli import main as tilewise

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
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


if __name__ == "__main__":
    for name in [name for name in os.environ if name.startswith("TILEWISE_")]:
        del os.environ[name]
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = updated(before)
        if "--check" in sys.argv[1:] and before != after:
            raise SystemExit(f"{page.name} is not what a run gives")
        page.write_text(after, encoding="utf-8")
