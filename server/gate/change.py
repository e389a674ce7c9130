"""One configuration before and after: its sides, and which keys changed."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.record import Record
from tilewise.server.architecture import sizes
from tilewise.server.gate.outcome import Outcome, Side
from tilewise.server.gate.places import Place, key_of, place_of
from tilewise.server.workload import Workload


class Change(Record):
    """head and base: the texts, base None where there is none; predictions: what stands for the base's text."""

    path: str
    head: Side
    base: Side | None
    predictions: dict[tuple[str, Workload], Outcome]

    @cached_property
    def same_shape(self) -> bool:
        """Whether both texts describe one shape; keys that shape nothing, order and spaces do not count."""
        if self.base is None:
            return False
        if self.base.text == self.head.text:
            return True
        try:
            before, after = (replace(side.architecture, name="", notes=()) for side in (self.base, self.head))
        except TilewiseError:
            return False
        return before == after

    @cached_property
    def sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Canonical sizes before (empty where there are none) and after; empty too where the text cannot be read."""

        def known(side: Side | None) -> dict[str, int]:
            try:
                return sizes(side.text, {}) if side is not None else {}
            except TilewiseError:
                return {}

        return known(self.base), known(self.head)

    @cached_property
    def changed_sizes(self) -> dict[str, tuple[int, int]]:
        """Canonical sizes that differ, before and after; none where there is no base to tell."""
        before, after = self.sizes
        return {name: (before[name], size) for name, size in after.items() if name in before and before[name] != size}

    @cached_property
    def changed_keys(self) -> tuple[str, ...]:
        """Keys of the head whose value the base lacks, in the order of the file."""
        before, after = (_flat(side.text) if side is not None else {} for side in (self.base, self.head))
        return tuple(key for key, value in after.items() if self.base is not None and before.get(key) != value)

    def touches(self, field: str) -> bool:
        """Whether a canonical size is new or another one than before."""
        before, after = self.sizes
        return before.get(field) != after.get(field)

    def place(self, *fields: str) -> tuple[str, Place | None]:
        """The key that states the first of these canonical sizes, or else the first key that changed, and where it stands."""
        stated = [key_of(self.head.text, field) for field in fields if field]
        for key in (*filter(None, stated), *self.changed_keys):
            if place := place_of(self.head.text, key):
                return key, place
        return fields[0] if fields else "", None


def _flat(text: str, prefix: str = "") -> dict[str, Any]:
    """Values of a JSON object by path; {} for what is none."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return dict(_leaves(raw, prefix)) if isinstance(raw, dict) else {}


def _leaves(level: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in level.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found
