"""Patterns of paths: `*` stays within a folder, `**` crosses folders, `?` is one character."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

_PARTS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches(path: str, pattern: str, policy_path: str = "") -> bool:
    """Whether a path fits a pattern that is relative to the policy's folder; both paths start at the same place."""
    folder = PurePosixPath(policy_path).parent
    inside = PurePosixPath(path)
    if inside.is_relative_to(folder):
        inside = inside.relative_to(folder)
    return _compiled(pattern.removeprefix("./")).fullmatch(inside.as_posix()) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(_PARTS.get(piece, re.escape(piece)) for piece in pieces), re.DOTALL)
