"""`tilewise check --update-budget`: absolute limits follow what is reached, in one direction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, floor, log10

from tilewise.server.gate.metrics import METRICS
from tilewise.server.gate.units import UNITS, quantity
from tilewise.v1.check_pb2 import VERDICT_ERROR, Comparison

DIGITS = 3  # a new limit is the worst value, rounded away from it to so many significant digits
_LIMIT = re.compile(r"""(\s*limit\s*=\s*)(["']?)([^"'#]+)\2(.*)""", re.DOTALL)


def lowered(policy: str, comparisons: Iterable[Comparison]) -> tuple[str, list[str]]:
    """The policy with tighter limits, and a sentence for each. Budgets with a value that is missing stay as they are."""
    worst: dict[int, list[Comparison]] = {}
    for each in comparisons:
        if each.limit.startswith("limit "):
            worst.setdefault(each.policy_line, []).append(each)
    lines, changes = policy.splitlines(keepends=True), []
    for line, found in worst.items():
        at = next((at for at in range(line - 1, len(lines)) if _LIMIT.fullmatch(lines[at])), None)
        if at is None or any(each.verdict == VERDICT_ERROR for each in found):
            continue
        match = _LIMIT.fullmatch(lines[at])
        assert match is not None
        new = _tighter(found, match[3].strip())
        if new is not None:
            lines[at] = f"{match[1]}{match[2]}{new}{match[2]}{match[4]}"
            changes.append(f"limit of {found[0].metric} {match[3].strip()} -> {new}")
    return "".join(lines), changes


def _tighter(found: list[Comparison], old: str) -> str | None:
    """The new limit in the old one's unit; None where the old one is as tight."""
    metric = METRICS[found[0].metric]
    unit = old.lstrip("+0123456789.e- ") or ""
    scale = UNITS[metric.unit][unit]
    value = (max if metric.less else min)(each.head for each in found) / scale
    step = 10.0 ** (floor(log10(value)) - DIGITS + 1) if value > 0 else 1.0
    rounded = (ceil if metric.less else floor)(value / step) * step
    limit = quantity(old, metric.unit) / scale
    if rounded >= limit if metric.less else rounded <= limit:
        return None
    return f"{rounded:.10g} {unit}".strip()
