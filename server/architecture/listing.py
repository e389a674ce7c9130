"""What can be read: every family with its source, what is read of it, and its limits."""

from __future__ import annotations

from tilewise.hwdb.record import Record
from tilewise.server.architecture.families import Family, family, names
from tilewise.server.architecture.sizes import spelled


class Listing(Record):
    """A family for a reader.

    what:   "decoder", "encoder", "vision tower", "text, vision" (the parts of a wrapper), "part of qwen3_vl"
    limits: what is refused of it
    """

    name: str
    what: str
    source: str
    limits: tuple[str, ...]


def listings() -> list[Listing]:
    """Every family in the order of their names."""
    return [listing(name) for name in names()]


def listing(name: str) -> Listing:
    """One family. Raises InvalidInput UNKNOWN_MODEL_TYPE."""
    table = family(name)
    return Listing(name=name, what=_what(table), source=table.source, limits=_limits(table))


def _what(table: Family) -> str:
    if table.part_of:
        return f"part of {table.part_of}"
    if table.parts:
        return ", ".join(table.parts)
    if table.values["encoder_decoder"]:
        return "encoder and decoder"
    role = str(table.values["role"])
    return f"{role} tower" if role in ("vision", "audio") else role


def _limits(table: Family) -> tuple[str, ...]:
    stated = [f"{key} must be {spelled(size)}" for key, size in table.only.items()]
    return (*stated, *(f"{refusal} is refused" for _, _, refusal in table.when if refusal))
