"""Feed-forward of one layer from canonical keys: dense, gated or plain; mixture of experts."""

from __future__ import annotations

import numpy as np

from tilewise.server.architecture.linear import column, norm, row
from tilewise.server.architecture.model import Experts, Linear, Mlp, Norm, Size
from tilewise.server.architecture.sizes import Keys, agreed, divide, invalid, need, product


def matrices(keys: Keys, hidden: Size, width: Size, bias: bool, gate_up: str) -> tuple[Linear, ...]:
    """The matrices of one feed-forward in the order the model runs them."""
    down = row("down_proj", width, hidden, bias)
    if not keys["gated"]:
        return column("up_proj", hidden, width, bias), down
    if gate_up == "fused":
        return column("gate_up_proj", hidden, 2 * width, bias), down
    return column("gate_proj", hidden, width, bias), column("up_proj", hidden, width, bias), down


def dense(keys: Keys, width: Size) -> Mlp:
    inner: tuple[Norm, ...] = (norm(keys, "ffn_norm", width),) if keys["mlp_inner_norm"] else ()
    return Mlp(
        width=width,
        projections=matrices(keys, keys["hidden_size"], width, keys["mlp_bias"], keys["gate_up"]),
        gated=keys["gated"],
        activation=keys["hidden_act"],
        norms=inner,
    )


def experts(keys: Keys) -> Experts | Mlp:
    """Routed experts, with the shared ones as one wider feed-forward beside them; no experts at all: the shared one.

    Zero experts (LongCat) hand a token on as it is: of its visits, those that work are counted, as many as even routing gives.
    """
    count = need(keys, "num_experts")
    width: Size = keys["intermediate_size"] if keys["moe_intermediate_size"] is None else keys["moe_intermediate_size"]
    shared_width = _shared_width(keys, width)
    if isinstance(count, int) and count == 0:
        if agreed(shared_width == 0):
            raise invalid("num_experts", "num_experts 0 and no shared expert leave a layer without a feed-forward")
        return dense(keys, shared_width)
    top_k = need(keys, "num_experts_per_tok")
    if np.any(top_k < 1):
        raise invalid(
            "num_experts_per_tok", f"num_experts_per_tok {top_k} is out of range: each token visits at least one expert"
        )
    if np.any(top_k > count):
        raise invalid("num_experts_per_tok", f"num_experts_per_tok {top_k} is more than num_experts {count}")
    visible = count if keys["zero_experts"] is None else count + keys["zero_experts"]
    top_k = divide(top_k * count, visible, "num_experts_per_tok * num_experts", "num_experts + zero_experts")
    hidden = keys["hidden_size"]
    inner = hidden if keys["moe_latent_size"] is None else keys["moe_latent_size"]
    return Experts(
        count=count,
        top_k=top_k,
        width=width,
        router=Linear(name="router", inputs=hidden, outputs=visible, bias=keys["router_bias"]),
        expert=matrices(keys, inner, width, keys["expert_bias"], keys["expert_gate_up"]),
        gated=keys["gated"],
        activation=keys["hidden_act"],
        latent=_latent(keys, hidden),
        shared=dense(keys, shared_width) if agreed(shared_width > 0) else None,
        shared_gate=Linear(name="shared_gate", inputs=hidden, outputs=1) if keys["shared_gate"] else None,
        extra_parameters=product(keys, keys["router_extra"]),
        unused_parameters=(visible - count) * 2 * width * inner,
    )


def _latent(keys: Keys, hidden: Size) -> tuple[Linear, ...]:
    inner, bias = keys["moe_latent_size"], keys["mlp_bias"]
    if inner is None:
        return ()
    return (
        Linear(name="latent_in_proj", inputs=hidden, outputs=inner, bias=bias),
        Linear(name="latent_out_proj", inputs=inner, outputs=hidden, bias=bias),
    )


def _shared_width(keys: Keys, width: Size) -> Size:
    """Width of the always-active experts together; 0 where there are none."""
    own: Size | None = keys["shared_expert_intermediate_size"]
    if own is not None:
        return product(keys, own) * (keys["n_shared_experts"] if keys["shared_per_expert"] else 1)
    shared: Size = (keys["n_shared_experts"] or 0) * width
    return shared
