"""Models are plain mappings; opening one into its objects takes longer than a prediction, so it happens once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

KEPT = 16  # models that stay open

Model = TypeVar("Model")


class Opened(Generic[Model]):
    """`opener(mapping)`, remembered for the last mappings it was called with; a mapping must not change afterwards."""

    def __init__(self, opener: Callable[[Mapping[str, Any]], Model]) -> None:
        self._opener = opener
        self._kept: OrderedDict[int, tuple[Mapping[str, Any], Model]] = OrderedDict()

    def __call__(self, mapping: Mapping[str, Any]) -> Model:
        found = self._kept.get(id(mapping))
        if found is None:
            found = mapping, self._opener(mapping)  # holding the mapping keeps its id its own
            self._kept[id(mapping)] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found[1]
