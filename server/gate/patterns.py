"""Patterns of paths: `*` stays within a folder, `**` crosses folders, `?` is one character.

Places in the path where a pattern may have got to are bits of one number, so that the cost grows with the lengths alone: a regular
expression for `*a*a*a*a` takes for ever on "aaaa...".
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

from tilewise.hwdb.remembered import TEXT_MAX

_PIECES = re.compile(r"\*\*/|\*\*|\*|\?|.", re.DOTALL)


def matches(path: str, pattern: str, policy_path: str = "") -> bool:
    """Whether a path fits a pattern that is relative to the policy's folder; both paths start at the same place."""
    folder = PurePosixPath(policy_path).parent
    inside = PurePosixPath(path)
    if inside.is_relative_to(folder):
        inside = inside.relative_to(folder)
    fits = _matches.__wrapped__ if len(pattern) + len(path) > TEXT_MAX else _matches
    return fits(inside.as_posix(), pattern.removeprefix("./"))


@lru_cache(maxsize=1024)
def _matches(path: str, pattern: str) -> bool:
    end = 1 << len(path)
    where = {char: sum(1 << at for at, each in enumerate(path) if each == char) for char in set(path)}
    apart = where.get("/", 0)
    inside = (end - 1) & ~apart  # characters that are no "/"
    begins = apart << 1 & ~apart & ~end  # of folders and files within folders
    at = 1
    for piece in _PIECES.findall(pattern):
        if piece == "*":
            at |= ((at & inside) + inside) ^ inside  # a carry runs to the end of a folder's name
        elif piece == "**":
            at = (end << 1) - (at & -at)
        elif piece == "**/":
            first = at & inside
            at |= begins & -(first & -first)
        else:
            at = (at & (inside if piece == "?" else where.get(piece, 0))) << 1
        if not at:
            return False
    return bool(at & end)
