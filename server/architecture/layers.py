"""Which layer has which mixer and which feed-forward, and the grouping of equal layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tilewise.server.architecture.model import Size
from tilewise.server.architecture.sizes import Keys, invalid

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def kinds(keys: Keys) -> dict[tuple[str, str], tuple[int, ...]]:
    """(mixer, feed-forward) -> indices of the layers that are so, in order of first appearance."""
    depth = int(np.max(keys["num_hidden_layers"]))
    mixers, feeds = _mixers(keys, depth), _feed_forwards(keys, depth)
    found: dict[tuple[str, str], list[int]] = {}
    for index, kind in enumerate(zip(mixers, feeds, strict=True)):
        found.setdefault(kind, []).append(index)
    return {kind: tuple(indices) for kind, indices in found.items()}


def repeats(indices: tuple[int, ...], depth: Size) -> Size:
    """How many of the layers lie below `depth`; an array of depths gives an array."""
    if isinstance(depth, np.ndarray):
        return np.searchsorted(np.asarray(indices), depth).astype(np.int64)
    return len(indices)


def _mixers(keys: Keys, depth: int) -> Sequence[str]:
    if keys["layer_types"]:
        return _listed(keys, "layer_types", depth)
    return _MIXERS[keys["mixers"]](keys, depth)


def _feed_forwards(keys: Keys, depth: int) -> Sequence[str]:
    if keys["mlp_layer_types"]:
        return ["experts" if kind == "sparse" else kind for kind in _listed(keys, "mlp_layer_types", depth)]
    rule = _FEED_FORWARDS.get(keys["feed_forward"])
    return rule(keys, depth) if rule else [keys["feed_forward"]] * depth


def _listed(keys: Keys, key: str, depth: int) -> Sequence[str]:
    """An explicit list, cut to `depth`: fewer layers of the same model are its first ones."""
    listed: list[str] = keys[key]
    if len(listed) < depth:
        raise invalid(key, f"{key} lists {len(listed)} layers, num_hidden_layers is {depth}; give one entry a layer")
    return listed[:depth]


def _full(keys: Keys, depth: int) -> Sequence[str]:
    return [FULL] * depth


def _window(keys: Keys, depth: int) -> Sequence[str]:
    return [SLIDING if keys["sliding_window"] else FULL] * depth


def _window_from_layer(keys: Keys, depth: int) -> Sequence[str]:
    """Qwen2: with use_sliding_window, layers from max_window_layers on have the window."""
    if not (keys["use_sliding_window"] and keys["sliding_window"]):
        return [FULL] * depth
    first = keys["max_window_layers"]
    return [SLIDING if index >= first else FULL for index in range(depth)]


_MIXERS = {"full": _full, "window": _window, "window_from_layer": _window_from_layer}


def _first_dense(keys: Keys, depth: int) -> Sequence[str]:
    """DeepSeek: the first layers dense, then every moe_layer_freq-th has experts."""
    first, step = keys["first_k_dense_replace"], keys["moe_layer_freq"]
    return ["experts" if index >= first and index % step == 0 else "dense" for index in range(depth)]


_FEED_FORWARDS = {"first_dense": _first_dense}
