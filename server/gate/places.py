"""Where the keys of a config.json stand: line and column, by path."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from tilewise.server.architecture.families import family, names


class Place(NamedTuple):
    """Line and column of a key, counted from 1; the column in characters."""

    line: int
    column: int


_TOKEN = re.compile(
    r'[\s,]*(?:(?P<text>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?|(?P<sign>[{}\[\]])|(?P<rest>[^\s,{}\[\]"]+))'
)


@lru_cache(2)  # every finding about a file asks again
def places(text: str) -> dict[str, Place]:
    """The place of every key of valid JSON by its path ("text_config.hidden_size"); keys inside of lists are left out."""
    found: dict[str, Place] = {}
    stack: list[str | None] = []  # the path of each object that is open; None: a list, or inside of one
    key, at = "", 0
    lines = [0, *(found.end() for found in re.finditer("\n", text))]  # where each begins
    while token := _TOKEN.match(text, at):
        at = token.end()
        if token["colon"]:
            parent = stack[-1] if stack else ""
            key = "" if parent is None else f"{parent}{json.loads(token['text'])}"
            if parent is not None:
                start = token.start("text")
                line = bisect_right(lines, start)
                found.setdefault(key, Place(line, start - lines[line - 1] + 1))
        elif token["sign"] in ("{", "["):
            inside_list = token["sign"] == "[" or (bool(stack) and stack[-1] is None)
            stack.append(None if inside_list else f"{key}." if stack else "")
        elif token["sign"] and stack:
            stack.pop()
    return found


def _place(text: str, offset: int) -> Place:
    before = text.rfind("\n", 0, offset)
    return Place(text.count("\n", 0, offset) + 1, offset - before)


def key_of(text: str, field: str) -> str:
    """The path of the key that states a canonical size in a config.json; "" where none does."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    levels = {"": raw, **{f"{part}.": raw.get(part) for part in ("text_config", "llm_config", "language_config")}}
    for prefix, level in reversed(levels.items()):
        if isinstance(level, dict):
            known = level.get("model_type") or raw.get("model_type")
            keys = family(known).keys if known in names() else {}
            for key in level:
                if field == key or field in keys.get(key, ()):
                    return f"{prefix}{key}"
    return ""


def place_of(text: str, key: str) -> Place | None:
    """Where a key stands, by its path; in our own TOML by its name. None where it does not."""
    if not key:
        return None
    if text.lstrip().startswith("{"):
        return places(text).get(key)
    found = re.search(rf"^[ \t]*({re.escape(key)})[ \t]*=", text, re.MULTILINE)
    return _place(text, found.start(1)) if found else None
