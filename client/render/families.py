"""Families of models for a reader."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import asdict

from tilewise.client.render.text import table
from tilewise.server.architecture.listing import Listing
from tilewise.server.operators.programs import AGREES, lines, program_at
from tilewise.server.workload import CHOICES

NEVER = "not compared"


def compared(family: str) -> str:
    """What was found when transformers' own code was traced beside our operators, by phase."""
    found: dict[str, list[str]] = {}
    for phase in CHOICES["phase"]:
        line = lines().get((family, phase))
        seen = NEVER if line is None or line["reason"] else "agrees" if program_at(line) == AGREES else "differs"
        found.setdefault(seen, []).append(phase)
    return "; ".join(
        word if len(phases) == len(CHOICES["phase"]) else f"{word}: {', '.join(phases)}"
        for word, phases in found.items()
    )


def as_json(found: Sequence[Listing]) -> str:
    return (
        json.dumps({"families": [{**asdict(each), "program": compared(each.name)} for each in found]}, indent=2) + "\n"
    )


def as_text(found: Sequence[Listing]) -> str:
    rows = [[each.name, each.what, each.source, compared(each.name), "; ".join(each.limits)] for each in found]
    return table(["family", "what is read", "source", "program", "limits"], rows) + "\n"
