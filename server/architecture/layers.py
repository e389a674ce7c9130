"""Which layer has which mixer and which feed-forward, and the grouping of equal layers.

Mixers are named as in the transformers library's `layer_types`; feed-forwards are "dense", "experts" or "none".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewise.server.architecture.model import Size
from tilewise.server.architecture.sizes import Keys, agreed, invalid

FULL, SLIDING, NOPE, NONE = "full_attention", "sliding_attention", "nope_attention", "none"
SHARED = "shared "  # before a mixer's name: over the keys and values of an earlier layer
_SAME: dict[object, str] = {
    0: "linear_attention",
    1: FULL,
    "attention": FULL,
    "mlp": NONE,
    "moe": NONE,
    "linear": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
}


def kinds(keys: Keys) -> dict[tuple[str, str], tuple[int, ...]]:
    """(mixer, feed-forward) -> indices of the layers that are so, in order of first appearance."""
    depth = int(np.max(keys["num_hidden_layers"]))
    found: dict[tuple[str, str], list[int]] = {}
    for index, kind in enumerate(zip(_mixers(keys, depth), _feed_forwards(keys, depth), strict=True)):
        found.setdefault(kind, []).append(index)
    return {kind: tuple(indices) for kind, indices in found.items()}


def repeats(indices: tuple[int, ...], depth: Size) -> Size:
    """How many of the layers lie below `depth`; an array of depths gives an array."""
    if isinstance(depth, np.ndarray):
        return np.searchsorted(np.asarray(indices), depth).astype(np.int64)
    return len(indices)


def _mixers(keys: Keys, depth: int) -> Sequence[str]:
    if keys["layer_types"]:
        mixers = [_SAME.get(kind, kind) for kind in _listed(keys, "layer_types", depth)]
    else:
        mixers = list(_MIXERS[keys["mixers"]](keys, depth))
    if keys["no_rope_layers"]:
        rotated = _listed(keys, "no_rope_layers", depth)
        mixers = [_unrotated(mixer, keys) if not rope else mixer for mixer, rope in zip(mixers, rotated, strict=True)]
    if keys["shared_layers"]:
        raise invalid("shared_layers", "layers that share keys and values as shared_layers lists are not supported")
    if keys["last_mixer"] and agreed(keys["num_hidden_layers"] == depth):
        mixers[-1] = keys["last_mixer"]
    mixers = [
        "shared_index" if shared else mixer for mixer, shared in zip(mixers, _index_shared(keys, depth), strict=True)
    ]
    first = _first_sharing(keys, depth)
    return [*mixers[:first], *(SHARED + mixer for mixer in mixers[first:])]


def _index_shared(keys: Keys, depth: int) -> Sequence[bool]:
    """GLM 5.2: layers that keep the keys which the indexer of an earlier layer has chosen."""
    if keys["indexer_types"]:
        return [kind == "shared" for kind in _listed(keys, "indexer_types", depth)]
    freq, offset = keys["index_topk_freq"], keys["index_skip_topk_offset"]
    return [max(index - offset + 1, 0) % freq != 0 for index in range(depth)]


def _first_sharing(keys: Keys, depth: int) -> int:
    """Gemma 3n: the last layers attend to the keys and values of the last layer of their kind before them."""
    sharing: int = keys["num_kv_shared_layers"] or 0
    if sharing and agreed(keys["num_hidden_layers"] == depth) and sharing >= depth:
        raise invalid("num_kv_shared_layers", f"num_kv_shared_layers {sharing} must be below num_hidden_layers {depth}")
    return depth - sharing


def _unrotated(mixer: str, keys: Keys) -> str:
    return NOPE if mixer in (FULL, keys["period_mixer"], "chunked_attention") else mixer


def _feed_forwards(keys: Keys, depth: int) -> Sequence[str]:
    if keys["mlp_layer_types"]:
        return ["dense" if kind in ("dense", 0) else "experts" for kind in _listed(keys, "mlp_layer_types", depth)]
    rule = _FEED_FORWARDS.get(keys["feed_forward"])
    return rule(keys, depth) if rule else [keys["feed_forward"]] * depth


def _listed(keys: Keys, key: str, depth: int) -> Sequence[str]:
    """An explicit list, cut to `depth`: fewer layers of the same model are its first ones."""
    listed: list[str] = keys[key]
    if len(listed) < depth:
        raise invalid(
            key, f"{key} lists {len(listed)} layers, num_hidden_layers is {depth}; one entry a layer is needed"
        )
    return listed[:depth]


def _full(keys: Keys, depth: int) -> Sequence[str]:
    return [FULL] * depth


def _window(keys: Keys, depth: int) -> Sequence[str]:
    return [SLIDING if _is_set(keys["sliding_window"]) else FULL] * depth


def _is_set(window: Size | None) -> bool:
    return window is not None and agreed(window > 0)


def _window_from_layer(keys: Keys, depth: int) -> Sequence[str]:
    """Qwen2: with use_sliding_window, layers from max_window_layers on have the window."""
    if not (keys["use_sliding_window"] and _is_set(keys["sliding_window"])):
        return [FULL] * depth
    first = keys["max_window_layers"]
    return [SLIDING if index >= first else FULL for index in range(depth)]


def _period(keys: Keys, depth: int) -> Sequence[str]:
    """Every `period`-th layer, from `period_offset` on (-1: the last of each period), is `period_mixer`."""
    period, special, other = keys["period"], keys["period_mixer"], keys["other_mixer"]
    if other == SLIDING and not _is_set(keys["sliding_window"]):
        other = FULL
    if special == other:
        return [other] * depth
    if not isinstance(period, int):
        raise invalid("period", f"the period of the layers must be a whole number, not {str(period)[:40]!r}")
    at = keys["period_offset"] % period
    return [special if index % period == at else other for index in range(depth)]


def _cycle(keys: Keys, depth: int) -> Sequence[str]:
    """RecurrentGemma: the listed kinds, again and again."""
    listed = keys["layer_cycle"]
    return [listed[index % len(listed)] for index in range(depth)]


def _first_and_period(keys: Keys, depth: int) -> Sequence[str]:
    """MiMo-V2: the first layer as every `period`-th is full, the others have the window."""
    return [FULL if index == 0 or (index + 1) % keys["period"] == 0 else SLIDING for index in range(depth)]


def _at_indices(keys: Keys, depth: int) -> Sequence[str]:
    """Bamba, LFM2, Llama 3.2 Vision: `period_mixer` at the listed layers, `other_mixer` elsewhere."""
    chosen = set(keys["attention_indices"] or ())
    return [keys["period_mixer"] if index in chosen else keys["other_mixer"] for index in range(depth)]


def _flagged(keys: Keys, depth: int) -> Sequence[str]:
    """MiniMax M3: `period_mixer` where the list has a one; no list: nowhere."""
    flags = _listed(keys, "flagged_layers", depth) if keys["flagged_layers"] else [0] * depth
    return [keys["period_mixer"] if flag else FULL for flag in flags]


def _kimi(keys: Keys, depth: int) -> Sequence[str]:
    """Kimi Linear: attention at the listed layers, counted from one; without a list every fourth, but not the first."""
    listed = keys["attention_indices"]
    chosen = {index for index in range(4, depth, 4)} if listed is None else {index - 1 for index in listed}
    return [FULL if index in chosen else "kimi_delta" for index in range(depth)]


_LETTERS = {"M": "mamba", "*": FULL, "-": NONE, "E": NONE}


def _letters(keys: Keys, depth: int) -> Sequence[str]:
    """Nemotron-H: a letter a layer, M mamba, * attention, - feed-forward, E experts."""
    if keys["layer_letters"] is None:
        raise invalid("hybrid_override_pattern", "hybrid_override_pattern is needed: a letter a layer of M, *, - and E")
    unknown = set(keys["layer_letters"]) - set(_LETTERS)
    if unknown:
        raise invalid(
            "hybrid_override_pattern", f"hybrid_override_pattern may hold M, *, - and E, not {min(unknown)!r}"
        )
    return [_LETTERS[letter] for letter in _listed(keys, "layer_letters", depth)]


def _zamba(keys: Keys, depth: int) -> Sequence[str]:
    """Zamba: two Mambas and a hybrid, then a hybrid every attn_layer_period, at attn_layer_offset counted from there."""
    period, at = keys["period"], keys["period_offset"]
    later = ["hybrid" if index % period == at else "mamba" for index in range(depth - 3)]
    return ["mamba", "mamba", "hybrid", *later][:depth]


_ZAMBA2 = (
    "mamba",
    *(("mamba",) * 5 + ("hybrid",)) * 7,
    *("mamba",) * 4,
    "hybrid",
    *("mamba",) * 3,
    "hybrid",
    "mamba",
    "mamba",
)


def _zamba2(keys: Keys, depth: int) -> Sequence[str]:
    """Zamba 2: the 54 layers that its class has where a config lists none."""
    if depth > len(_ZAMBA2):
        raise invalid(
            "num_hidden_layers",
            f"num_hidden_layers {depth} needs layers_block_type; without it there are {len(_ZAMBA2)}",
        )
    return _ZAMBA2[:depth]


def _compressed(keys: Keys, depth: int) -> Sequence[str]:
    """DeepSeek V4: two layers keep every 128th key, then such layers and those with an indexer take turns."""
    if keys["compress_ratios"]:
        names = {0: SLIDING, 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
        ratios = _listed(keys, "compress_ratios", depth)
        if set(ratios) - set(names):
            raise invalid("compress_ratios", "compress_ratios may hold 0, 4 and 128")
        return [names[int(ratio)] for ratio in ratios]
    sparse, heavy = "compressed_sparse_attention", "heavily_compressed_attention"
    return [sparse if index >= 2 and index % 2 else heavy for index in range(depth)]


_Rule = Callable[[Keys, int], Sequence[str]]
_MIXERS: dict[str, _Rule] = {
    "full": _full,
    "window": _window,
    "window_from_layer": _window_from_layer,
    "period": _period,
    "at_indices": _at_indices,
    "cycle": _cycle,
    "first_and_period": _first_and_period,
    "flagged": _flagged,
    "kimi": _kimi,
    "letters": _letters,
    "zamba": _zamba,
    "zamba2": _zamba2,
    "compressed": _compressed,
}


def _first_dense(keys: Keys, depth: int) -> Sequence[str]:
    """DeepSeek: the first layers dense, then every moe_layer_freq-th has experts."""
    first, step = keys["first_k_dense_replace"], keys["moe_layer_freq"]
    return ["experts" if index >= first and index % step == 0 else "dense" for index in range(depth)]


def _every(keys: Keys, depth: int) -> Sequence[str]:
    """Experts every `experts_period`-th layer (-1: the last of each period) but not in mlp_only_layers."""
    if isinstance(keys["moe_layers"], list) and keys["moe_layers"]:
        chosen = set(keys["moe_layers"])
        return ["experts" if index in chosen else "dense" for index in range(depth)]
    period, dense = keys["experts_period"], set(keys["mlp_only_layers"] or ())
    at = keys["experts_offset"] % period
    return ["experts" if index % period == at and index not in dense else "dense" for index in range(depth)]


def _range(keys: Keys, depth: int) -> Sequence[str]:
    """ERNIE 4.5: experts from one layer to another, every so many."""
    first, last, step = keys["experts_first"], keys["experts_last"], keys["experts_period"]
    last = depth - 1 if last == -1 else last  # as Ernie4_5_MoeConfig says it
    return ["experts" if first <= index <= last and (index + 1) % step == 0 else "dense" for index in range(depth)]


def _sparse_layers(keys: Keys, depth: int) -> Sequence[str]:
    """Switch Transformers: experts every `sparse_step`-th layer (0: nowhere), or in so many layers, evenly spread."""
    step = keys["sparse_step"]
    if step is None:
        step = depth // keys["sparse_layers"] if keys["sparse_layers"] else depth
    return ["experts" if step == 1 or (step and index % step == 1) else "dense" for index in range(depth)]


def _wide_where_shared(keys: Keys, depth: int) -> Sequence[str]:
    """Gemma 4: layers without keys of their own may have a feed-forward of twice the width."""
    first = _first_sharing(keys, depth) if keys["use_double_wide_mlp"] else depth
    return ["dense"] * first + ["wide"] * (depth - first)


def _block_types(keys: Keys, depth: int) -> Sequence[str]:
    """Nemotron-H: a layer is a mixer or a feed-forward, never both."""
    if keys["layer_types"]:
        names = {"mlp": "dense", "moe": "experts"}
        return [names.get(kind, NONE) for kind in _listed(keys, "layer_types", depth)]
    return [{"-": "dense", "E": "experts"}.get(letter, NONE) for letter in _listed(keys, "layer_letters", depth)]


_FEED_FORWARDS: dict[str, _Rule] = {
    "first_dense": _first_dense,
    "every": _every,
    "range": _range,
    "block_types": _block_types,
    "sparse_layers": _sparse_layers,
    "wide_where_shared": _wide_where_shared,
}
