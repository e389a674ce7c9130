"""Attention of one layer from canonical keys: grouped heads, latent (MLA), and latent with compressed keys (V4)."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tilewise.server.architecture.linear import column, norm, row
from tilewise.server.architecture.model import Attention, Indexer, Latent, Linear, Norm, Size
from tilewise.server.architecture.sizes import Keys, divide, invalid, need, product


def grouped(keys: Keys, window: Size = 0, chunk: Size = 0, rotary: bool = True, cross: bool = False) -> Attention:
    """Grouped-head attention; multi-head and multi-query are its ends."""
    heads, kv_heads, dim = keys["num_attention_heads"], keys["num_key_value_heads"], keys["head_dim"]
    dim_v = dim if keys["head_dim_v"] is None else keys["head_dim_v"]
    divide(kv_heads, keys["attention_passes"], "num_key_value_heads", "attention_passes")
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        head_dim_v=dim_v,
        projections=_projections(keys, heads, kv_heads, dim, dim_v),
        norms=_head_norms(keys, heads, kv_heads, dim),
        causal=keys["causal"] and not cross,
        window=window,
        chunk=chunk,
        rope_dim=rotary_dim(keys, dim) if rotary and not cross else 0,
        cross=cross,
        sinks=keys["sinks"],
        passes=keys["attention_passes"],
        extra_parameters=keys["cross_extra"] if cross else product(keys, keys["attention_extra"]),
    )


def _projections(keys: Keys, heads: Size, kv_heads: Size, dim: Size, dim_v: Size) -> tuple[Linear, ...]:
    inputs = keys["hidden_size"] if keys["attention_hidden_size"] is None else keys["attention_hidden_size"]
    bias, q, k, v = keys["qkv_bias"], heads * dim, kv_heads * dim, kv_heads * dim_v
    out = row("o_proj", heads * dim_v, keys["hidden_size"], keys["out_bias"])
    if keys["square_out"] and np.any(heads * dim_v != keys["hidden_size"]):
        must = f"num_attention_heads {heads} * head_dim {dim_v} must be hidden_size {keys['hidden_size']}"
        raise invalid("head_dim", f"{must}: the output projection is square")
    if keys["attention_gate"] == "fused":
        q = 2 * q
    if keys["qkv"] == "fused":
        return column("qkv_proj", inputs, q + k + v, bias), out
    k_bias = bias if keys["k_bias"] is None else keys["k_bias"]
    gates = {"separate": q, "head": heads}
    return (
        column("q_proj", inputs, q, bias),
        column("k_proj", inputs, k, k_bias),
        *(() if keys["v_is_k"] else (column("v_proj", inputs, v, bias),)),
        *(column("gate_proj", inputs, width) for gate, width in gates.items() if gate == keys["attention_gate"]),
        out,
    )


def sharing(own: Attention) -> Attention:
    """The same attention over the keys and values of an earlier layer: its queries and its output alone."""
    return replace(
        own,
        projections=(own.projections[0], own.projections[-1]),
        norms=tuple(norm for norm in own.norms if norm.name == "q_norm"),
        shares_kv=True,
    )


def _head_norms(keys: Keys, heads: Size, kv_heads: Size, dim: Size) -> tuple[Norm, ...]:
    kind = keys["qk_norm"]
    if kind == "head":
        values = (Norm(name="v_norm", width=dim, heads=kv_heads, weight=False),) if keys["v_norm"] else ()
        return norm(keys, "q_norm", dim, heads), norm(keys, "k_norm", dim, kv_heads), *values
    if kind == "full":
        keys = keys if keys["qk_norm_bias"] else {**keys, "norm_bias": False}
        return norm(keys, "q_norm", heads * dim), norm(keys, "k_norm", kv_heads * dim)
    if kind == "unweighted":
        return tuple(
            Norm(name=name, width=dim, heads=count, weight=False)
            for name, count in (("q_norm", heads), ("k_norm", kv_heads))
        )
    return ()


def rotary_dim(keys: Keys, dim: Size) -> Size:
    """Dimensions of a head that are rotated, in pairs. Raises InvalidInput where all of an odd number would be."""
    if not keys["rotary"]:
        return 0
    if keys["rotary_dim"] is not None:
        own: Size = keys["rotary_dim"]
        return own
    factor = keys["partial_rotary_factor"]
    if factor > 1:
        raise invalid("partial_rotary_factor", f"partial_rotary_factor {factor} is out of range: 0 to 1 is allowed")
    if factor != 1.0:
        return np.floor(dim * factor).astype(np.int64) if isinstance(dim, np.ndarray) else int(dim * factor)
    if np.any(dim % 2):
        raise invalid("head_dim", f"head_dim {dim} is odd: the rotary embedding turns pairs of dimensions")
    return dim


def latent(keys: Keys) -> Attention:
    """Multi-head latent attention (DeepSeek V2): keys and values through a low rank, rotary part apart."""
    hidden, heads = keys["hidden_size"], keys["num_attention_heads"]
    rank, nope, rope, dim_v = (
        keys["kv_lora_rank"],
        keys["qk_nope_head_dim"],
        keys["qk_rope_head_dim"],
        keys["v_head_dim"] or divide(hidden, heads, "hidden_size", "num_attention_heads"),
    )
    queries, norms = _latent_queries(keys, hidden, heads * (nope + rope))
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        head_dim_v=dim_v,
        projections=(
            *queries,
            Linear(name="kv_a_proj", inputs=hidden, outputs=rank + rope, bias=keys["qkv_bias"]),
            column("kv_b_proj", rank, heads * (nope + dim_v)),
            row("o_proj", heads * dim_v, hidden, keys["out_bias"]),
        ),
        norms=(*norms, norm(keys, "kv_a_norm", rank)),
        rope_dim=rope,
        indexer=_indexer(keys) if keys["index_topk"] is not None else None,
        latent=Latent(
            kv_rank=rank,
            rope_dim=rope,
            nope_dim=nope,
            q_rank=keys["q_lora_rank"] or 0,
            caches_whole=keys["caches_whole"],
        ),
    )


def _latent_queries(keys: Keys, hidden: Size, outputs: Size) -> tuple[tuple[Linear, ...], tuple[Norm, ...]]:
    rank = keys["q_lora_rank"]
    if rank is None:
        return (column("q_proj", hidden, outputs),), ()
    down = Linear(name="q_a_proj", inputs=hidden, outputs=rank, bias=keys["qkv_bias"])
    return (down, column("q_b_proj", rank, outputs)), (norm(keys, "q_a_norm", rank),)


def _indexer(keys: Keys) -> Indexer:
    """DeepSeek V3.2: small heads that score every cached token."""
    heads, dim, hidden = keys["index_n_heads"], keys["index_head_dim"], keys["hidden_size"]
    if keys["index_shared"]:
        return Indexer(heads=heads, head_dim=dim, top_k=keys["index_topk"], projections=(), shared=True)
    return Indexer(
        heads=heads,
        head_dim=dim,
        top_k=keys["index_topk"],
        projections=(
            Linear(name="index_q_proj", inputs=need(keys, "q_lora_rank"), outputs=heads * dim),
            Linear(name="index_k_proj", inputs=hidden, outputs=dim),
            Linear(name="index_weights_proj", inputs=hidden, outputs=heads),
        ),
        norms=(Norm(name="index_k_norm", width=dim, kind="layer", bias=True),),
    )


def blockwise(keys: Keys) -> Attention:
    """MiniMax M3: grouped heads over the blocks of keys that a small indexer picks."""
    heads, dim, hidden = keys["index_n_heads"], keys["index_head_dim"], keys["hidden_size"]
    indexer = Indexer(
        heads=heads,
        head_dim=dim,
        top_k=keys["index_topk_blocks"] * keys["index_block_size"],
        projections=(
            Linear(name="index_q_proj", inputs=hidden, outputs=heads * dim),
            Linear(name="index_k_proj", inputs=hidden, outputs=dim),
        ),
        norms=(norm(keys, "index_q_norm", dim, heads), norm(keys, "index_k_norm", dim)),
    )
    return replace(grouped(keys), indexer=indexer)


def compressed(keys: Keys, rate: int) -> Attention:
    """DeepSeek V4: one shared key-value head, a window, and beyond it one compressed key for `rate` tokens (0: none).

    Rate 4 compresses overlapping pairs and picks by an indexer; rate 128 keeps all compressed keys.
    """
    hidden, heads, dim = keys["hidden_size"], keys["num_attention_heads"], keys["head_dim"]
    groups, out_rank, q_rank = keys["o_groups"], keys["o_lora_rank"], need(keys, "q_lora_rank")
    group = divide(heads * dim, groups, "num_attention_heads * head_dim", "o_groups")
    overlap = 2 if rate == keys["index_rate"] else 1
    width = overlap * dim
    compressor = () if not rate else _compressor(hidden, width)
    compressor_norms = () if not rate else (norm(keys, "compressor_norm", dim),)
    return Attention(
        heads=heads,
        kv_heads=1,
        head_dim=dim,
        head_dim_v=dim,
        projections=(
            Linear(name="q_a_proj", inputs=hidden, outputs=q_rank),
            column("q_b_proj", q_rank, heads * dim),
            Linear(name="kv_proj", inputs=hidden, outputs=dim),
            *compressor,
            column("o_a_proj", group, groups * out_rank),
            row("o_b_proj", groups * out_rank, hidden),
        ),
        norms=(norm(keys, "q_a_norm", q_rank), norm(keys, "kv_norm", dim), *compressor_norms),
        window=keys["sliding_window"],
        compression=rate,
        rope_dim=rotary_dim(keys, dim),
        sinks=True,
        values_are_keys=True,
        extra_parameters=rate * width,
        indexer=_compressed_indexer(keys, rate) if overlap == 2 else None,
    )


def _compressor(hidden: Size, width: Size, prefix: str = "compressor") -> tuple[Linear, ...]:
    return (
        Linear(name=f"{prefix}_kv_proj", inputs=hidden, outputs=width),
        Linear(name=f"{prefix}_gate_proj", inputs=hidden, outputs=width),
    )


def _compressed_indexer(keys: Keys, rate: int) -> Indexer:
    heads, dim, hidden = keys["index_n_heads"], keys["index_head_dim"], keys["hidden_size"]
    return Indexer(
        heads=heads,
        head_dim=dim,
        top_k=keys["index_topk"],
        projections=(
            *_compressor(hidden, 2 * dim, "index"),
            Linear(name="index_q_proj", inputs=need(keys, "q_lora_rank"), outputs=heads * dim),
            Linear(name="index_weights_proj", inputs=hidden, outputs=heads),
        ),
        norms=(norm(keys, "index_k_norm", dim),),
        extra_parameters=rate * 2 * dim,
    )
