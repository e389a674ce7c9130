"""Canonical keys -> stacks and the whole Architecture."""

from __future__ import annotations

from tilewise.server.architecture.layers import CHUNKED, SLIDING, kinds, repeats
from tilewise.server.architecture.model import (
    Architecture,
    Block,
    Embedding,
    FeedForward,
    Linear,
    Mixer,
    Norm,
    Split,
    Stack,
)
from tilewise.server.architecture.parts import attention, experts, mlp, norm
from tilewise.server.architecture.sizes import Keys, invalid, product


def mixer(keys: Keys, kind: str) -> tuple[Mixer, ...]:
    if kind == SLIDING:
        if not keys["sliding_window"]:
            raise invalid("sliding_window", "layer_types names sliding_attention, but sliding_window is not given")
        return (attention(keys, window=keys["sliding_window"]),)
    if kind == CHUNKED:
        return (attention(keys, chunk=keys["attention_chunk_size"]),)
    return (attention(keys),)


def feed_forward(keys: Keys, kind: str) -> FeedForward | None:
    if kind == "experts":
        return experts(keys)
    return mlp(keys, keys["intermediate_size"]) if kind == "dense" else None


def blocks(keys: Keys) -> tuple[Block, ...]:
    """One Block a kind of layer."""
    norms = tuple(norm(keys, name, keys["hidden_size"]) for name in keys["block_norms"])
    return tuple(
        Block(
            layers=layers,
            count=repeats(layers, keys["num_hidden_layers"]),
            mixers=mixer(keys, mixing),
            feed_forward=feed_forward(keys, feeding),
            norms=norms,
            parallel=keys["parallel"],
        )
        for (mixing, feeding), layers in kinds(keys).items()
    )


def embeddings(keys: Keys) -> tuple[Embedding, ...]:
    hidden = keys["hidden_size"]
    tables = [Embedding(name="embed_tokens", rows=keys["vocab_size"], width=hidden)]
    if keys["position_rows"]:
        rows = product(keys, keys["position_rows"])
        tables.append(Embedding(name="embed_positions", rows=rows, width=hidden, kind="position"))
    return tuple(tables)


def decoder(keys: Keys) -> Stack:
    hidden = keys["hidden_size"]
    final: tuple[Norm, ...] = (norm(keys, "norm", hidden),) if keys["final_norm"] else ()
    return Stack(name="decoder", hidden=hidden, blocks=blocks(keys), embeddings=embeddings(keys), norms=final)


def language_model(keys: Keys, family: str, model_type: str, name: str) -> Architecture:
    hidden, vocab = keys["hidden_size"], keys["vocab_size"]
    head = Linear(name="lm_head", inputs=hidden, outputs=vocab, bias=keys["head_bias"], split=Split.COLUMN)
    return Architecture(
        family=family,
        model_type=model_type,
        stacks=(decoder(keys),),
        vocab=vocab,
        hidden=hidden,
        head=head if keys["head"] else None,
        tied=bool(keys["tie_word_embeddings"]),
        dtype=keys["dtype"],
        max_positions=keys["max_position_embeddings"],
        name=name,
    )
