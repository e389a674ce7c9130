"""Mixers with a state instead of a cache, from canonical keys: Mamba 1 and 2, gated delta net, short convolution."""

from __future__ import annotations

import numpy as np

from tilewise.server.architecture.linear import column, norm, row
from tilewise.server.architecture.model import Linear, Norm, Recurrent, Size
from tilewise.server.architecture.sizes import Keys, divide, invalid, need


def mamba1(keys: Keys) -> Recurrent:
    """Selective scan over the stated width, or `expand * hidden` channels (arXiv 2312.00752); Zamba splits it into heads."""
    hidden, state, kernel = keys["hidden_size"], keys["mamba_d_state"], keys["mamba_d_conv"]
    heads = keys["mamba_scan_heads"]
    inner = keys["mamba_expand"] * hidden if keys["mamba_d_ssm"] is None else keys["mamba_d_ssm"]
    rank = keys["mamba_dt_rank"]
    rank = -(-hidden // 16) if rank is None else rank  # ceil(hidden / 16), as in every Mamba config class
    bias = keys["mamba_proj_bias"]
    norms: tuple[Norm, ...] = ()
    if keys["mamba_inner_norms"]:
        norms = (norm(keys, "dt_norm", rank), norm(keys, "b_norm", state), norm(keys, "c_norm", state))
    return Recurrent(
        kind="mamba1",
        inner=inner,
        state=state,
        heads=heads,
        conv_kernel=kernel,
        conv_channels=inner,
        conv_bias=keys["mamba_conv_bias"],
        projections=(
            column("in_proj", hidden, 2 * inner, bias),
            row("x_proj", inner, rank + 2 * state),
            column("dt_proj", rank, inner, True),
            row("out_proj", inner, hidden, bias),
        ),
        norms=norms,
        state_elements=inner * (state + kernel - 1),
        extra_parameters=inner * state + inner,  # A_log and D
    )


def mamba2(keys: Keys) -> Recurrent:
    """State-space duality with scalar decay a head (arXiv 2405.21060)."""
    hidden, state, kernel = keys["hidden_size"], keys["mamba_d_state"], keys["mamba_d_conv"]
    heads, groups = keys["mamba_n_heads"], keys["mamba_n_groups"]
    inner = _inner_width(keys, heads)
    dim = divide(inner, heads, "the width of the scan", "mamba_n_heads")
    channels = inner + 2 * groups * state
    bias = keys["mamba_proj_bias"]
    out_bias = bias if keys["mamba_out_bias"] is None else keys["mamba_out_bias"]
    return Recurrent(
        kind="mamba2",
        inner=inner,
        state=state,
        heads=heads,
        head_dim=dim,
        groups=groups,
        conv_kernel=kernel,
        conv_channels=channels,
        conv_bias=keys["mamba_conv_bias"],
        projections=(
            column("in_proj", hidden, inner + channels + heads, bias),
            row("out_proj", inner, hidden, out_bias),
        ),
        norms=(norm(keys, "gated_norm", inner),) if keys["mamba_gated_norm"] else (),
        state_elements=inner * state + channels * (kernel - 1),
        extra_parameters=3 * heads,  # A_log, D and dt_bias
    )


def _inner_width(keys: Keys, heads: Size) -> Size:
    """Channels of the scan: stated, heads * head size, or expand * hidden; they must agree with the heads."""
    if keys["mamba_d_ssm"] is not None:
        stated: Size = keys["mamba_d_ssm"]
        return stated
    dim = keys["mamba_d_head"]
    expanded: Size = keys["mamba_expand"] * keys["hidden_size"]
    if keys["mamba_inner"] == "heads":
        product: Size = heads * dim
        return product
    if dim is not None and np.any(heads * dim != expanded):
        raise invalid("mamba_n_heads", f"mamba heads {heads} times head size {dim} is not expand * hidden {expanded}")
    return expanded


def gated_delta(keys: Keys) -> Recurrent:
    """Gated delta rule (arXiv 2412.06464) as in Qwen3-Next: heads of keys shared by groups of value heads."""
    hidden, kernel = keys["hidden_size"], keys["linear_conv_kernel_dim"]
    k_heads, v_heads = need(keys, "linear_num_key_heads"), need(keys, "linear_num_value_heads")
    k_dim, v_dim = need(keys, "linear_key_head_dim"), need(keys, "linear_value_head_dim")
    key, value = k_heads * k_dim, v_heads * v_dim
    channels = 2 * key + value
    return Recurrent(
        kind="gated_delta",
        inner=value,
        state=k_dim,
        heads=v_heads,
        head_dim=v_dim,
        groups=k_heads,
        conv_kernel=kernel,
        conv_channels=channels,
        projections=(*_delta_inputs(keys, hidden, channels, value, v_heads), row("out_proj", value, hidden)),
        norms=(Norm(name="gated_norm", width=v_dim, heads=v_heads),),
        state_elements=v_heads * k_dim * v_dim + channels * (kernel - 1),
        extra_parameters=2 * v_heads,  # A_log and dt_bias
    )


def kimi_delta(keys: Keys) -> Recurrent:
    """Kimi delta attention (arXiv 2510.26692): a gated delta rule with a decay a channel, gates through a low rank."""
    hidden, kernel = keys["hidden_size"], keys["linear_conv_kernel_dim"]
    heads, dim = keys["linear_num_heads"], keys["linear_head_dim"]
    inner = heads * dim
    return Recurrent(
        kind="gated_delta",
        inner=inner,
        state=dim,
        heads=heads,
        head_dim=dim,
        groups=heads,
        conv_kernel=kernel,
        conv_channels=3 * inner,
        projections=(
            *(column(name, hidden, inner) for name in ("q_proj", "k_proj", "v_proj")),
            Linear(name="f_a_proj", inputs=hidden, outputs=dim),
            column("f_b_proj", dim, inner),
            column("b_proj", hidden, heads),
            Linear(name="g_a_proj", inputs=hidden, outputs=dim),
            column("g_b_proj", dim, inner),
            row("o_proj", inner, hidden),
        ),
        norms=(Norm(name="o_norm", width=dim, heads=heads),),
        state_elements=heads * dim * dim + 3 * inner * (kernel - 1),
        extra_parameters=inner + heads,  # dt_bias and A_log
    )


def lightning(keys: Keys) -> Recurrent:
    """Lightning attention (arXiv 2405.17381) as in MiniMax-Text-01: a fixed decay a head, no softmax, an output gate."""
    hidden, heads, dim = keys["hidden_size"], keys["num_attention_heads"], keys["head_dim"]
    inner = heads * dim
    return Recurrent(
        kind="lightning",
        inner=inner,
        state=dim,
        heads=heads,
        head_dim=dim,
        groups=heads,
        projections=(
            column("qkv_proj", hidden, 3 * inner),
            column("output_gate", hidden, inner),
            row("out_proj", inner, hidden),
        ),
        norms=(norm(keys, "norm", inner),),
        state_elements=heads * dim * dim,
    )


def gated_recurrence(keys: Keys) -> Recurrent:
    """Real-gated linear recurrence (Griffin, arXiv 2402.19427), a scan of one state a channel; its gates are matrices a head."""
    hidden, heads, kernel = keys["hidden_size"], keys["num_attention_heads"], keys["mamba_d_conv"]
    inner = hidden if keys["mamba_d_ssm"] is None else keys["mamba_d_ssm"]
    block = divide(inner, heads, "lru_width", "num_attention_heads")
    return Recurrent(
        kind="mamba1",
        inner=inner,
        state=1,
        conv_kernel=kernel,
        conv_channels=inner,
        conv_bias=True,
        projections=(
            column("linear_y", hidden, inner, True),
            column("linear_x", hidden, inner, True),
            Linear(name="input_gate", inputs=inner, outputs=block),
            Linear(name="recurrent_gate", inputs=inner, outputs=block),
            row("linear_out", inner, hidden, True),
        ),
        state_elements=inner * kernel,
        extra_parameters=3 * inner,  # both gates' biases and the decays
    )


def _delta_inputs(keys: Keys, hidden: Size, channels: Size, value: Size, heads: Size) -> tuple[Linear, ...]:
    if keys["linear_inputs"] == "apart":
        widths = {"q_proj": (channels - value) // 2, "k_proj": (channels - value) // 2, "v_proj": value}
        widths |= {"a_proj": heads, "b_proj": heads, "g_proj": value}
        return tuple(column(name, hidden, width) for name, width in widths.items())
    if keys["linear_inputs"] == "fused":
        return column("in_proj_qkvz", hidden, channels + value), column("in_proj_ba", hidden, 2 * heads)
    return (
        column("in_proj_qkv", hidden, channels),
        column("in_proj_z", hidden, value),
        column("in_proj_b", hidden, heads),
        column("in_proj_a", hidden, heads),
    )


def short_conv(keys: Keys) -> Recurrent:
    """LFM2: a gated depthwise convolution of a few taps; its state is the last taps alone."""
    hidden, taps, bias = keys["hidden_size"], keys["conv_L_cache"], keys["conv_bias"]
    return Recurrent(
        kind="short_conv",
        inner=hidden,
        state=0,
        conv_kernel=taps,
        conv_channels=hidden,
        conv_bias=bias,
        projections=(column("in_proj", hidden, 3 * hidden, bias), row("out_proj", hidden, hidden, bias)),
        state_elements=hidden * (taps - 1),
    )
