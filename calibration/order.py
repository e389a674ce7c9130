"""Orders in which any prefix is a balanced sample, so that a shorter budget is simply a prefix."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def interleave(groups: Sequence[tuple[float, Sequence[Item]]]) -> list[Item]:
    """Merge weighted groups: after any number of items, each group has had its share (until it runs out)."""
    stamped = [
        ((position + 0.5) / weight, number, item)
        for number, (weight, items) in enumerate(groups)
        for position, item in enumerate(items)
    ]
    stamped.sort(key=lambda entry: entry[:2])
    return [item for _, _, item in stamped]


def shuffled(items: Sequence[Item], seed: str) -> list[Item]:
    """A random order that is the same on every machine and run."""
    order = list(items)
    random.Random(seed).shuffle(order)
    return order
