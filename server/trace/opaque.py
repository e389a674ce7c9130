"""scaled_dot_product_attention as one operator each way, as its fused kernels are.

On the meta device torch would take it apart into matrix products and a softmax, which no GPU runs unless no fused kernel takes the
operands (sdp_utils.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@torch.library.custom_op("tilewise::attention_forward", mutates_args=())
def attention_forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool, masked: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError("exists to be traced")


@attention_forward.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, masked: bool) -> tuple[torch.Tensor, ...]:
    out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty(*q.shape[:-1], v.shape[-1])
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("tilewise::attention_backward", mutates_args=())
def attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    is_causal: bool,
    masked: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError("exists to be traced")


@attention_backward.register_fake
def _(
    grad: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: Any, lse: Any, is_causal: bool, masked: bool
) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    *tensors, ctx.is_causal, ctx.masked = inputs
    ctx.set_materialize_grads(False)  # nobody reads the statistics
    ctx.save_for_backward(*tensors, *output)


def _back(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
    return (*attention_backward(grad, *ctx.saved_tensors, ctx.is_causal, ctx.masked), None, None)


attention_forward.register_autograd(_back, setup_context=_keep)


@contextmanager
def opaque_attention() -> Iterator[None]:
    """Inside, scaled_dot_product_attention on the meta device is one operator, wherever it is called from."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("scaled_dot_product_attention", _attend, "AutogradMeta")
        yield


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = _additive(attn_mask, query.dtype)
    if query.shape[-3] != key.shape[-3] and not enable_gqa:  # heads left to broadcasting: no fused kernel takes them
        math: tuple[torch.Tensor, ...] = torch.ops.aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return math[0]
    result: torch.Tensor = attention_forward(query, key, value, is_causal, attn_mask is not None)[0]
    return result


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask in the scores' type, as sdpa makes it whatever kernel follows (convert_boolean_attn_mask)."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))
