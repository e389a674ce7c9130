"""The model that is advised on: its text, its sizes, and the same model with sizes changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.record import Record
from tilewise.server.architecture import Architecture, count, read_with, sizes
from tilewise.server.architecture.model import Size

WIDTHS = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
FIELDS = (
    "vocab_size", *WIDTHS, "num_attention_heads", "head_dim", "num_key_value_heads", "hidden_size", "num_experts",
    "num_hidden_layers",
)  # fmt: skip


class Subject(Record):
    """text, overrides, name: of the model as it is, as `read_with` takes them."""

    text: str
    overrides: Mapping[str, int]
    name: str = ""

    def read(self, changed: Mapping[str, Size]) -> Architecture:
        """The model with the canonical sizes of `changed` replaced. Raises InvalidInput where that is impossible."""
        return read_with(self.text, {**self.overrides, **changed}, self.name)

    @cached_property
    def architecture(self) -> Architecture:
        return self.read({})

    @cached_property
    def parameters(self) -> int:
        return int(count(self.architecture).total)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Every canonical size, those included that follow from others."""
        return sizes(self.text, self.overrides)

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """The FIELDS that this model has: a change of theirs is a change of its parameters or of its heads."""
        return tuple(field for field in FIELDS if self.sizes.get(field) and self._matters(field))

    @cached_property
    def head_dim_follows(self) -> bool:
        """Whether head_dim is hidden_size over heads (and not a size of its own)."""
        return "head_dim" in self.sizes and self._follows("head_dim", "hidden_size")

    @cached_property
    def kv_heads_follow(self) -> bool:
        """Whether the key and value heads are the query heads without the config's saying so."""
        return "num_key_value_heads" in self.sizes and self._follows("num_key_value_heads", "num_attention_heads")

    def _follows(self, follower: str, leader: str) -> bool:
        try:
            doubled = sizes(self.text, {**self.overrides, leader: 2 * self.sizes[leader]})
        except InvalidInput:
            return False
        return doubled[follower] != self.sizes[follower]

    def _matters(self, field: str) -> bool:
        if field in ("num_attention_heads", "head_dim", "num_key_value_heads", "num_hidden_layers"):
            return True
        try:
            more = count(self.read({field: 2 * self.sizes[field]})).total
        except InvalidInput:  # hidden_size that other sizes must divide, and the like: it does matter
            return True
        return bool(np.any(more != self.parameters))
