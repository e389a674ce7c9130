"""Canonical keys -> the stacks of a model."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewise.server.architecture import attention, feed_forward, recurrent
from tilewise.server.architecture.layers import FULL, NOPE, SHARED, SLIDING, kinds, repeats
from tilewise.server.architecture.linear import column, listed, norm, sized_norms
from tilewise.server.architecture.model import (
    Architecture,
    Attention,
    Block,
    Embedding,
    FeedForward,
    Linear,
    Mixer,
    Size,
    Split,
    Stack,
)
from tilewise.server.architecture.sizes import Keys, agreed, divide, invalid, product


def _sliding(keys: Keys) -> Attention:
    window = keys["sliding_window"]
    if window is None or (isinstance(window, int) and window == 0):
        raise invalid("sliding_window", "a layer has sliding_attention, but sliding_window is not given")
    return attention.grouped(keys, window=window)


_MIXERS: dict[str, Callable[[Keys], Mixer]] = {
    FULL: lambda keys: (attention.latent if keys["latent"] else attention.grouped)(keys),
    SLIDING: _sliding,
    NOPE: lambda keys: attention.grouped(keys, rotary=False),
    "cross_attention": lambda keys: attention.grouped({**keys, "qk_norm": keys["cross_qk_norm"]}, cross=True),
    "chunked_attention": lambda keys: attention.grouped(keys, chunk=keys["attention_chunk_size"]),
    "indexed_attention": attention.latent,
    "shared_index": lambda keys: attention.latent({**keys, "index_shared": True}),
    "minimax_m3_sparse": attention.blockwise,
    "compressed_sparse_attention": lambda keys: attention.compressed(keys, keys["index_rate"]),
    "heavily_compressed_attention": lambda keys: attention.compressed(keys, 128),
    "uncompressed_attention": lambda keys: attention.compressed(keys, 0),
    "mamba": lambda keys: (recurrent.mamba1 if keys["mamba"] == 1 else recurrent.mamba2)(keys),
    "linear_attention": recurrent.gated_delta,
    "kimi_delta": recurrent.kimi_delta,
    "lightning": recurrent.lightning,
    "gated_recurrence": recurrent.gated_recurrence,
    "conv": recurrent.short_conv,
}


def _mixer(keys: Keys, kind: str) -> tuple[Mixer, ...]:
    """The mixers of one kind of layer; a family may say which of ours its word means."""
    kind = keys["mixer_names"].get(kind, kind)
    if kind == "none":
        return ()
    shared, kind = kind.startswith(SHARED), kind.removeprefix(SHARED)
    if kind not in _MIXERS:
        close = difflib.get_close_matches(kind, _MIXERS, n=3, cutoff=0.5) or list(_MIXERS)[:5]
        raise invalid("layer_types", f"layer type {kind[:40]!r} is not known; the nearest that are: {', '.join(close)}")
    own = keys["layer_values"].get(kind, {})
    mixer = _MIXERS[kind]({**keys, **{key: product(keys, size) for key, size in own.items()}})
    if shared and isinstance(mixer, Attention):
        mixer = attention.sharing(mixer)
    side = (_MIXERS[keys["beside"]](keys),) if keys["beside"] else ()
    cross = (attention.grouped(keys, cross=True),) if keys["cross_attention"] else ()
    return (mixer, *side, *cross)


def _feed_forward(keys: Keys, kind: str) -> FeedForward | None:
    if kind == "experts":
        return feed_forward.experts(keys)
    if kind in ("dense", "wide"):
        width = keys["intermediate_size" if keys["dense_intermediate_size"] is None else "dense_intermediate_size"]
        width = product(keys, width)
        return feed_forward.dense(keys, 2 * width if kind == "wide" else width)
    return None


def blocks(keys: Keys) -> tuple[Block, ...]:
    """One Block a kind of layer."""
    norms = tuple(norm(keys, name, keys["hidden_size"]) for name in keys["block_norms"])
    later = tuple(norm(keys, name, keys["hidden_size"]) for name in keys["experts_norms"])
    linears, extra = listed(keys, keys["block_linears"]), product(keys, keys["block_extra"])
    return tuple(
        Block(
            layers=layers,
            count=repeats(layers, keys["num_hidden_layers"]),
            mixers=_mixer(keys, mixing),
            feed_forward=_feed_forward(keys, feeding),
            norms=(*norms, *later) if feeding == "experts" else norms,
            parallel=keys["parallel"],
            extra_linears=linears,
            extra_parameters=extra,
            shared_weights=again,
        )
        for (mixing, feeding), every in kinds(keys).items()
        for layers, again in _by_weights(keys, every)
    )


def _by_weights(keys: Keys, layers: tuple[int, ...]) -> list[tuple[tuple[int, ...], bool]]:
    """Layers with weights of their own, and those that use them again."""
    groups = keys["weight_groups"]
    if not groups:
        return [(layers, False)]
    if groups > np.min(keys["num_hidden_layers"]):
        raise invalid("weight_groups", f"{groups} groups of layers that share weights are more than the layers")
    return [(part, again) for part, again in ((layers[:groups], False), (layers[groups:], True)) if part]


def zamba_blocks(keys: Keys) -> tuple[Block, ...]:
    """Zamba: every layer a Mamba; before some of them a transformer layer, one of `num_mem_blocks` that take turns.

    The shared layer reads the hidden state beside the embedding, so its norm and projections are twice as wide.
    """
    grouping = kinds(keys)
    hybrid = next((layers for (kind, _), layers in grouping.items() if kind == "hybrid"), ())
    every = tuple(sorted(index for layers in grouping.values() for index in layers))
    hidden, wide = keys["hidden_size"], keys["attention_hidden_size"]
    norms = (norm(keys, "input_layernorm", wide), norm(keys, "pre_ff_layernorm", hidden))
    mixers: tuple[Mixer, ...] = (attention.grouped(keys),)
    feed = feed_forward.dense(keys, keys["intermediate_size"])
    shared = [
        Block(layers=part, count=repeats(part, keys["num_hidden_layers"]), mixers=mixers, feed_forward=feed, norms=norms,
              shared_weights=repeated)
        for part, repeated in ((hybrid[: keys["num_mem_blocks"]], False), (hybrid[keys["num_mem_blocks"] :], True))
        if part
    ]  # fmt: skip
    joins = Block(
        layers=hybrid,
        count=repeats(hybrid, keys["num_hidden_layers"]),
        mixers=(),
        feed_forward=None,
        extra_linears=(Linear(name="linear", inputs=hidden, outputs=hidden), *listed(keys, keys["block_linears"])),
    )
    mamba = Block(
        layers=every,
        count=repeats(every, keys["num_hidden_layers"]),
        mixers=_mixer(keys, "mamba"),
        feed_forward=None,
        norms=(norm(keys, "input_layernorm", hidden),),
    )
    return (*shared, joins, mamba) if hybrid else (mamba,)


def _embeddings(keys: Keys) -> tuple[Embedding, ...]:
    """Token, position and token-type tables, each where the family has it."""
    hidden = keys["hidden_size"]
    tables = []
    if keys["vocab_size"] is not None and keys["token_table"]:
        width = hidden if keys["embedding_size"] is None else keys["embedding_size"]
        tables.append(Embedding(name="embed_tokens", rows=keys["vocab_size"], width=width))
    if keys["position_rows"]:
        rows = product(keys, keys["position_rows"]) + keys["position_offset"]
        tables.append(Embedding(name="embed_positions", rows=rows, width=hidden, kind=keys["position_kind"]))
    if keys["type_vocab_size"]:
        tables.append(Embedding(name="embed_types", rows=keys["type_vocab_size"], width=hidden, kind="type"))
    own = ((entry, product(keys, entry["rows"]), product(keys, entry["width"])) for entry in keys["tables"])
    tables += [Embedding(name=entry["name"], rows=rows, width=width, kind=entry["kind"]) for entry, rows, width in own]
    return tuple(tables)


def _embedding_projections(keys: Keys) -> tuple[Linear, ...]:
    """Matrices between tables and model where their widths differ."""
    narrow, hidden = keys["embedding_size"], keys["hidden_size"]
    if narrow is None or (agreed(narrow == hidden) and not keys["always_projected"]):
        return ()
    ways = {"project_in": (narrow, hidden), "project_out": (hidden, narrow)}
    bias = keys["embedding_projection_bias"]
    return tuple(Linear(name=name, inputs=ways[name][0], outputs=ways[name][1], bias=bias)
                 for name in keys["embedding_projections"])  # fmt: skip


def stack(keys: Keys) -> Stack:
    """One tower: its embeddings, blocks, and what stands before and after them."""
    hidden = keys["hidden_size"]
    outer = (*(norm(keys, name, hidden) for name in keys["stack_norms"]), *sized_norms(keys, keys["stack_sized_norms"]))
    return Stack(
        name=keys["role"],
        hidden=hidden,
        blocks=(zamba_blocks if keys["mixers"].startswith("zamba") else blocks)(keys),
        role=keys["stream"],
        tokens=product(keys, keys["tokens"]),
        longest=product(keys, keys["longest"] or keys["position_rows"]),
        embeddings=_embeddings(keys),
        linears=(*_embedding_projections(keys), *listed(keys, keys["stack_linears"])),
        norms=outer,
        class_tokens=keys["class_tokens"] * keys["tiles"],
        pooled=listed(keys, keys["pooled_linears"]),
        extra_parameters=product(keys, keys["stack_extra"]),
    )


def vision_keys(keys: Keys) -> Keys:
    """The keys of a vision tower with the number of its tokens: one a patch, and the class token, of each tile."""
    side = keys["image_size"] // keys["patch_size"]
    tile = side * side + keys["class_tokens"]
    return {**keys, "tile_tokens": tile, "tokens": tile * keys["tiles"]}


def decoder_keys(keys: Keys) -> Keys:
    """The decoder of an encoder-decoder model: causal, with cross-attention; its own sizes where it has them."""
    own = {target: keys[source] for source, target in _DECODER_SIZES.items() if keys[source] is not None}
    changed: dict[str, Any] = {
        **keys,
        "head_dim": None,
        **own,
        "role": "decoder",
        "causal": True,
        "cross_attention": True,
        "token_table": not keys["token_table"],
        "sparse_step": keys["decoder_sparse_step"],
    }
    if keys["decoder_attention_heads"] is None:
        changed["head_dim"] = keys["head_dim"]
    else:
        changed["num_key_value_heads"] = keys["decoder_attention_heads"]
        changed["head_dim"] = divide(keys["hidden_size"], changed["num_attention_heads"], "hidden_size", "heads")
    return {**changed, **keys["decoder"]}


_DECODER_SIZES = {
    "num_decoder_layers": "num_hidden_layers",
    "decoder_attention_heads": "num_attention_heads",
    "decoder_intermediate_size": "intermediate_size",
    "decoder_sparse_layers": "sparse_layers",
}


def stacks(keys: Keys) -> tuple[Stack, ...]:
    if keys["image_size"] is not None:
        return (stack(vision_keys(keys)),)
    if keys["encoder_decoder"]:
        return stack(keys), stack(decoder_keys(keys))
    return (stack(keys),)


def architecture(keys: Keys, family: str, model_type: str, name: str) -> Architecture:
    """A model of one config without parts."""
    hidden, vocab = keys["hidden_size"], keys["vocab_size"]
    return Architecture(
        family=family,
        model_type=model_type,
        stacks=stacks(keys),
        vocab=0 if vocab is None else vocab,
        hidden=hidden,
        head=_head(keys, hidden, vocab),
        tied=bool(keys["tie_word_embeddings"]) and keys["head"] == "vocabulary",
        head_norms=tuple(norm(keys, name, _head_width(keys)) for name in keys["head_norms"]),
        head_linears=listed(keys, keys["head_linears"]),
        extra_parameters=product(keys, keys["model_extra"]),
        dtype=keys["dtype"] if isinstance(keys["dtype"], str) else "bfloat16",
        name=name,
        longest=keys["stated_length"],
    )


def _head_width(keys: Keys) -> Size:
    widths = (keys[name] for name in ("head_width", "embedding_size", "hidden_size"))
    width: Size = next(width for width in widths if width is not None)
    return width


def _head(keys: Keys, hidden: Size, vocab: Size | None) -> Linear | None:
    """The matrix onto the vocabulary, or onto the labels of a task."""
    if keys["head"] == "vocabulary" and vocab is not None:
        return column("lm_head", _head_width(keys), vocab, keys["head_bias"])
    if keys["head"] == "labels":
        return Linear(name="classifier", inputs=hidden, outputs=keys["num_labels"], bias=True, split=Split.NONE)
    return None
