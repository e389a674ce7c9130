"""Quantities as a policy writes them: "2 %", "310 ms", "72 GiB"."""

from __future__ import annotations

import re

UNITS: dict[str, dict[str, float]] = {
    "share": {"%": 0.01, "": 1.0},
    "s": {"us": 1e-6, "ms": 1e-3, "s": 1.0},
    "bytes": {"B": 1.0, "MB": 1e6, "GB": 1e9, "MiB": 2.0**20, "GiB": 2.0**30},
    "count": {"": 1.0, "M": 1e6, "B": 1e9},
    "tokens/s": {"": 1.0, "tokens/s": 1.0},
}
EXAMPLES = {"share": "2 %", "s": "310 ms", "bytes": "72 GiB", "count": "8.1 B", "tokens/s": "7000"}
_QUANTITY = re.compile(r"\s*\+?(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z%/]*)\s*")


def quantity(text: object, unit: str) -> float:
    """The SI value of a quantity of `unit` (a key of UNITS). Raises ValueError with what is allowed."""
    found = _QUANTITY.fullmatch(str(text)) if isinstance(text, str | int | float) and text is not True else None
    scale = UNITS[unit].get(found[2]) if found else None
    if found is None or scale is None:
        units = ", ".join(name or "none" for name in UNITS[unit])
        raise ValueError(f'{text!r} is no quantity here: write "{EXAMPLES[unit]}" (units: {units})')
    return float(found[1]) * scale
