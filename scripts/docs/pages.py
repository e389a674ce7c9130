"""The made parts of README.md and docs/*.md: tables, and transcripts of commands.

`<!-- made by: NAME -->` up to `<!-- end -->` holds what the function NAME (MODULE.FUNCTION) of scripts/docs answers, or of
scripts/research where that takes minutes. A function with a parameter `shared` reads tables that are no part of the project: they
are looked for in $TILEWISE_SHARED, else in ../shared. Transcripts need no mark: see transcripts.py.
"""

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path

import transcripts

ROOT = Path(__file__).resolve().parents[2]
RESEARCH = ROOT / "scripts" / "research"
SHARED = Path(os.environ.get("TILEWISE_SHARED", ROOT.parent / "shared"))
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MADE = re.compile(r"(<!-- made by: (\w+\.\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
sys.path.append(str(RESEARCH))


def names(text: str) -> list[str]:
    """What makes the parts of a page."""
    return [match[2] for match in MADE.finditer(text)]


def slow(name: str) -> bool:
    """Whether it takes minutes, so that it is made only when it is asked for by its name."""
    return (RESEARCH / f"{name.partition('.')[0]}.py").exists()


def maker(name: str) -> Callable[..., str]:
    module, _, function = name.partition(".")
    found: Callable[..., str] = getattr(import_module(module), function)
    return found


def needs_shared(name: str) -> bool:
    """Whether it reads tables that are no part of the project."""
    return "shared" in signature(maker(name)).parameters


def made(name: str) -> str:
    """A part as it is now. Raises FileNotFoundError where it needs tables that are not there."""
    if not needs_shared(name):
        return maker(name)()
    if not SHARED.is_dir():
        raise FileNotFoundError(f"{name} needs measured tables that are no part of the project ($TILEWISE_SHARED)")
    return maker(name)(SHARED)


def updated(text: str, wanted: Callable[[str], bool]) -> str:
    """A page with its transcripts, and every part that is wanted, as they are now."""

    def part(match: re.Match[str]) -> str:
        return f"{match[1]}{made(match[2]).strip()}\n{match[3]}" if wanted(match[2]) else match[0]

    return transcripts.updated(MADE.sub(part, text))
