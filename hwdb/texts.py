"""JSON and TOML that strangers wrote: bounded in depth and parts before they are parsed, finite and valid Unicode after.

A limit on bytes bounds no cost: a dotted key of n parts costs a TOML parser n^2, and eight bytes of JSON become a hundred.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from typing import Any

DEPTH_MAX = 32  # the deepest real configuration has 5
PARTS_MAX = 100_000  # values and keys; the largest real configuration has 3,000
TOML_BYTES_MAX, TOML_PARTS_MAX = 2**18, 10_000  # people write it by hand, and a part costs ten times as much to parse
_STRING = (
    r'"""(?:\\.|[^\\])*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'"
)  # a string of TOML; those of three quotes may end with up to two more
_APART = re.compile(rf"(?P<comment>\#[^\n]*)|(?P<string>{_STRING})", re.DOTALL)
_LONG_KEY = re.compile(rf"(?<![\w.-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{DEPTH_MAX},}}+")
_LONG_NUMBER = re.compile(r"(?<![\w.-])[+-]?0[xob]\w{40,}")  # which Python reads, and then cannot write in an error
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def read_json(text: str, *, finite: bool = True) -> Any:
    """Raises ValueError, in one line, for what is no JSON, holds too much, or half a character.

    finite: a number that is none, or beyond any, is refused too; configurations of real models hold Infinity
    """
    _count(sum(map(text.count, ",[{")), PARTS_MAX)
    try:
        of = _finite if finite else float
        found = json.loads(text, parse_constant=of, parse_float=of)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if "\\u" in text:  # only an escape can write half of a pair
        _check_unicode(found)
    return found


def read_toml(text: str) -> dict[str, Any]:
    """Raises ValueError as `read_json` does."""
    if len(text) > TOML_BYTES_MAX:
        raise ValueError(f"{len(text):,} characters; at most {TOML_BYTES_MAX:,} are read")
    bare = _APART.sub(lambda found: "" if found["comment"] else "s", text)
    _count(sum(map(bare.count, ",[{=")), TOML_PARTS_MAX)
    if _LONG_KEY.search(bare):
        raise ValueError(f"a key of more than {DEPTH_MAX} parts")
    if _LONG_NUMBER.search(bare):
        raise ValueError("a number of more than 40 digits")
    try:
        return tomllib.loads(text, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def printable(text: str) -> str:
    """The text as one line that no terminal, log or annotation takes for more: what is not printed is written as an escape."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def without_password(url: str) -> str:
    """A database's address as it may be shown."""
    return re.sub(r"([?&]\w*password)=[^&]*", r"\1=***", re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url))


def has_control(text: str) -> bool:
    """Whether a text holds a character that is not printed."""
    return _UNPRINTABLE.search(text) is not None


def texts_of(value: Any) -> list[str]:
    """Every text within, keys included."""
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in texts_of(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts_of(each)]
    return [value] if isinstance(value, str) else []


def _count(parts: int, most: int) -> None:
    if parts > most:
        raise ValueError(f"{parts:,} values and keys; at most {most:,}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no finite number")
    return number


def _check_unicode(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("half of a surrogate pair, which is no character") from error
