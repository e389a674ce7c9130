"""`per_layer_config`, in which the transformers library saves what differs from layer to layer, as values of a kind of layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.server.architecture.families import Family, key_rules
from tilewise.server.architecture.sizes import check_size, invalid

_LISTS = {"num_attention_heads_per_layer": "num_attention_heads"}  # Laguna lists one size


def by_kind(raw: Mapping[str, Any], family: Family) -> tuple[Mapping[str, Any], dict[str, dict[str, int]] | None]:
    """The config without its `per_layer_config`, and that one as mixer -> {canonical key: size}; None where it has none.

    Raises InvalidInput where layers of one kind differ, or the config does not list its kinds.
    """
    own, kinds = _per_layer(raw), raw.get("layer_types")
    if own is None:
        return raw, None
    rest = {key: value for key, value in raw.items() if key not in ("per_layer_config", *_LISTS)}
    if not isinstance(own, dict) or not isinstance(kinds, list):
        raise invalid("per_layer_config", "per_layer_config is read where layer_types lists the kinds of the layers")
    if len(kinds) > key_rules().limits["num_hidden_layers"]:
        raise invalid("layer_types", f"layer_types lists {len(kinds)} layers, more than are believed")
    found = {}
    for kind in dict.fromkeys(str(kind) for kind in kinds):
        values = [own.get(str(index), own.get(f"{index:02}", {})) for index, other in enumerate(kinds) if other == kind]
        if any(value != values[0] for value in values):
            raise invalid("per_layer_config", f"per_layer_config differs among layers of the kind {kind[:40]}")
        found[kind] = _sizes(values[0], family)
    return rest, found


def _per_layer(raw: Mapping[str, Any]) -> Any:
    """{index: {key: size}} of the layers, from either form; None where the config has neither."""
    for key, size in _LISTS.items():
        if isinstance(raw.get(key), list):
            return {str(index): {size: value} for index, value in enumerate(raw[key])}
    return raw.get("per_layer_config")


def _sizes(values: Any, family: Family) -> dict[str, int]:
    """{canonical key: size} of one layer's own values."""
    unknown = [key for key in values if key not in family.keys] if isinstance(values, dict) else ["per_layer_config"]
    if unknown:
        raise invalid("per_layer_config", f"{str(unknown[0])[:60]} in per_layer_config is not understood")
    return {to: int(check_size(key, size)) for key, size in values.items() for to in family.keys[key]}
