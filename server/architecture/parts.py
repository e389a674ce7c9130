"""Builders of one layer's parts from canonical keys: norms, attention, feed-forward."""

from __future__ import annotations

from typing import Any

import numpy as np
from tilewise.server.architecture.model import Attention, Experts, Linear, Mlp, Norm, Size, Split
from tilewise.server.architecture.sizes import Keys, invalid

COLUMN, ROW = Split.COLUMN, Split.ROW


def norm(keys: Keys, name: str, width: Size, heads: Size = 1) -> Norm:
    return Norm(
        name=name, width=width, heads=heads, kind=keys["norm"], weight=keys["norm_weight"], bias=keys["norm_bias"]
    )


def attention(keys: Keys, window: Size = 0, chunk: Size = 0, cross: bool = False) -> Attention:
    """Grouped-head attention; multi-head and multi-query are its ends."""
    hidden, heads, kv_heads, dim = (
        keys["hidden_size"], keys["num_attention_heads"], keys["num_key_value_heads"], keys["head_dim"],
    )  # fmt: skip
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        head_dim_v=dim,
        projections=_projections(keys, hidden, heads * dim, kv_heads * dim),
        norms=_head_norms(keys, heads, kv_heads, dim),
        causal=keys["causal"] and not cross,
        window=window,
        chunk=chunk,
        rope_dim=rotary_dim(keys, dim),
        cross=cross,
        sinks=keys["sinks"],
    )


def _projections(keys: Keys, hidden: Size, q: Size, kv: Size) -> tuple[Linear, ...]:
    bias = keys["qkv_bias"]
    out = Linear(name="o_proj", inputs=q, outputs=hidden, bias=keys["out_bias"], split=ROW)
    if keys["attention_gate"]:
        q = 2 * q
    if keys["qkv"] == "fused":
        return Linear(name="qkv_proj", inputs=hidden, outputs=q + 2 * kv, bias=bias, split=COLUMN), out
    return (
        Linear(name="q_proj", inputs=hidden, outputs=q, bias=bias, split=COLUMN),
        Linear(name="k_proj", inputs=hidden, outputs=kv, bias=bias, split=COLUMN),
        Linear(name="v_proj", inputs=hidden, outputs=kv, bias=bias, split=COLUMN),
        out,
    )


def _head_norms(keys: Keys, heads: Size, kv_heads: Size, dim: Size) -> tuple[Norm, ...]:
    if keys["qk_norm"] == "head":
        return norm(keys, "q_norm", dim, heads), norm(keys, "k_norm", dim, kv_heads)
    if keys["qk_norm"] == "full":
        return norm(keys, "q_norm", heads * dim), norm(keys, "k_norm", kv_heads * dim)
    return ()


def rotary_dim(keys: Keys, dim: Size) -> Size:
    if not keys["rotary"]:
        return 0
    factor = keys["partial_rotary_factor"]
    if factor == 1.0:
        return dim
    return np.floor(dim * factor).astype(np.int64) if isinstance(dim, np.ndarray) else int(dim * factor)


def matrices(keys: Keys, hidden: Size, width: Size, bias: bool, gate_up: str) -> tuple[Linear, ...]:
    """The matrices of one feed-forward in the order the model runs them."""
    down = Linear(name="down_proj", inputs=width, outputs=hidden, bias=bias, split=ROW)
    up = Linear(name="up_proj", inputs=hidden, outputs=width, bias=bias, split=COLUMN)
    if not keys["gated"]:
        return up, down
    if gate_up == "fused":
        return Linear(name="gate_up_proj", inputs=hidden, outputs=2 * width, bias=bias, split=COLUMN), down
    return Linear(name="gate_proj", inputs=hidden, outputs=width, bias=bias, split=COLUMN), up, down


def mlp(keys: Keys, width: Size) -> Mlp:
    return Mlp(
        width=width,
        projections=matrices(keys, keys["hidden_size"], width, keys["mlp_bias"], keys["gate_up"]),
        gated=keys["gated"],
        activation=keys["hidden_act"],
    )


def experts(keys: Keys) -> Experts:
    """Routed experts, with the shared ones as one wider feed-forward beside them."""
    hidden, count, width = keys["hidden_size"], keys["num_experts"], keys["moe_intermediate_size"]
    top_k = keys["num_experts_per_tok"]
    if np.any(top_k > count):
        raise invalid("num_experts_per_tok", f"num_experts_per_tok {top_k} is more than the {count} experts")
    shared_width = _shared_width(keys, width)
    return Experts(
        count=count,
        top_k=top_k,
        width=width,
        router=Linear(name="router", inputs=hidden, outputs=count, bias=keys["router_bias"]),
        expert=matrices(keys, hidden, width, keys["expert_bias"], keys["expert_gate_up"]),
        gated=keys["gated"],
        activation=keys["hidden_act"],
        shared=mlp(keys, shared_width) if shared_width is not None else None,
        shared_gate=Linear(name="shared_gate", inputs=hidden, outputs=1) if keys["shared_gate"] else None,
        extra_parameters=count if keys["correction_bias"] else 0,
    )


def _shared_width(keys: Keys, width: Size) -> Any:
    """Width of the always-active experts together; None where there are none."""
    if keys["shared_expert_intermediate_size"]:
        return keys["shared_expert_intermediate_size"]
    if keys["n_shared_experts"]:
        return keys["n_shared_experts"] * width
    return None
