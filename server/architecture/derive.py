"""Sizes a config leaves out because they follow from others."""

from __future__ import annotations

import numpy as np

from tilewise.server.architecture.model import Size
from tilewise.server.architecture.sizes import Keys, divide, invalid, need


def derive(keys: Keys) -> None:
    """Fills the absent sizes of `keys` and checks that heads divide what they must."""
    if "num_hidden_layers" not in keys:
        return  # the outer config of a multimodal model has no layers of its own
    if keys["num_hidden_layers"] is None:
        keys["num_hidden_layers"] = _listed_layers(keys)
    need(keys, "hidden_size")
    if keys["num_global_layers"] is not None:  # Llama 3.2's tower: after the others
        keys["num_hidden_layers"] = keys["num_hidden_layers"] + keys["num_global_layers"]
    if keys["mixers"].startswith("zamba") and keys["attention_hidden_size"] is None:
        keys["attention_hidden_size"] = 2 * keys["hidden_size"]  # the hidden state beside the embedding
    if keys["linear_heads_derived"]:
        _derive_linear_heads(keys)
    if keys["num_attention_heads"] is not None:
        _derive_heads(keys, keys["num_attention_heads"])
    if keys["intermediate_size"] is None:
        width = keys["mlp_ratio"] * keys["hidden_size"]
        keys["intermediate_size"] = int(width) if isinstance(width, float) else width
    if keys["halved_width"]:
        keys["intermediate_size"] = divide(keys["intermediate_size"], 2, "intermediate_size", "2")
    if keys["id2label"]:
        keys["num_labels"] = len(keys["id2label"])
    if keys["block_auto_adjust_ff_dim"]:
        keys["intermediate_size"] = _adjusted_width(keys)


def _listed_layers(keys: Keys) -> int:
    """Nemotron-H states its depth only as the length of its pattern."""
    listed = keys["layer_letters"] or keys["layer_types"]
    if not listed:
        raise invalid("num_hidden_layers", "num_hidden_layers is needed and not given")
    return len(listed)


def _derive_linear_heads(keys: Keys) -> None:
    """OLMo Hybrid: as many heads as attention has, keys of three quarters of the width, values twice as wide (OlmoHybridConfig)."""
    for name in ("linear_num_key_heads", "linear_num_value_heads"):
        keys[name] = keys["num_attention_heads"] if keys[name] is None else keys[name]
    if keys["linear_key_head_dim"] is None:
        keys["linear_key_head_dim"] = 3 * keys["hidden_size"] // (4 * keys["linear_num_key_heads"])
    if keys["linear_value_head_dim"] is None:
        keys["linear_value_head_dim"] = 2 * keys["linear_key_head_dim"]


def _derive_heads(keys: Keys, heads: Size) -> None:
    if keys["num_key_value_heads"] is None:
        keys["num_key_value_heads"] = heads
    elif not keys["latent"]:
        divide(heads, keys["num_key_value_heads"], "num_attention_heads", "num_key_value_heads")
    if keys["head_dim"] is not None or keys["latent"]:
        return
    hidden = keys["hidden_size"] * (
        2 if keys["mixers"].startswith("zamba") else 1
    )  # whatever attention_hidden_size says
    if keys["floor_head_dim"]:
        keys["head_dim"] = (
            np.maximum(hidden // heads, 1) if isinstance(hidden // heads, np.ndarray) else hidden // heads
        )
    else:
        keys["head_dim"] = divide(hidden, heads, "hidden_size", "num_attention_heads")


def _adjusted_width(keys: Keys) -> Size:
    """LFM2: two thirds of the stated width, times a factor, rounded up to a multiple (modeling_lfm2.py, Lfm2MLP)."""
    width = np.asarray(2 * keys["intermediate_size"] // 3)
    multiple = keys["block_multiple_of"]
    scaled = np.floor(width * keys["block_ffn_dim_multiplier"]).astype(np.int64)
    adjusted = -(-scaled // multiple) * multiple
    return adjusted if adjusted.ndim else int(adjusted)
