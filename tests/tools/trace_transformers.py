"""Counts what transformers' own models do, on the meta device: FLOPs, kernels and what autograd keeps, per layer.

    python tests/tools/trace_transformers.py > tests/server/operators/transformers_counts.json

Needs torch 2.13.0 and transformers 5.17.0 (CPU builds do). For every family a small model of 2 and one of 3 layers is
run forward and backward; a layer is the difference. The output is committed, so that the tests need neither library.

FLOPs: torch's FlopCounterMode. Kernels: aten operators that are no views, with those that launch several written out
(`LAUNCHES`); attention is replaced by one opaque operator, as its fused kernels are. Saved: bytes of distinct storages
that autograd packs, parameters and inputs left out.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

BATCH, SEQUENCE = 2, 320
SMALL = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "vocab_size": 1000}
GROUPED = {**SMALL, "num_key_value_heads": 2}
EXPERTS = {**GROUPED, "moe_intermediate_size": 256, "num_experts_per_tok": 2}
N_KEYS = {"n_embd": 512, "n_head": 8, "vocab_size": 1000}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "mistral": {**GROUPED, "sliding_window": None},
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 64},
    "gemma": {**GROUPED, "head_dim": 64},
    "gemma2": {**GROUPED, "head_dim": 64, "sliding_window": 4096},
    "gemma3_text": {**GROUPED, "head_dim": 64, "sliding_window": 4096},
    "phi": SMALL,
    "phi3": {**GROUPED, "pad_token_id": 0},
    "gpt2": N_KEYS,
    "gpt_neox": SMALL,
    "gptj": {**N_KEYS, "rotary_dim": 32},
    "opt": {"hidden_size": 512, "ffn_dim": 2048, "num_attention_heads": 8, "vocab_size": 1000, "word_embed_proj_dim": 512},
    "falcon": {"hidden_size": 512, "num_attention_heads": 8, "vocab_size": 1000},
    "bloom": {"hidden_size": 512, "n_head": 8, "vocab_size": 1000},
    "gpt_bigcode": N_KEYS,
    "starcoder2": {**GROUPED, "sliding_window": None},
    "stablelm": GROUPED,
    "olmo": GROUPED,
    "olmo2": GROUPED,
    "granite": GROUPED,
    "cohere": GROUPED,
    "nemotron": GROUPED,
    "glm": {**GROUPED, "head_dim": 64, "pad_token_id": 0},
    "mixtral": {**GROUPED, "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 256},
    "olmoe": {**GROUPED, "num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 256},
    "qwen2_moe": {**EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 512},
    "qwen3_moe": {**EXPERTS, "num_experts": 8, "head_dim": 64, "norm_topk_prob": True},
    "deepseek_v3": {
        **EXPERTS, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_key_value_heads": 8, "q_lora_rank": 192,
        "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "first_k_dense_replace": 0,
        "n_shared_experts": 1,
    },
}  # fmt: skip

VIEWS = frozenset(
    ("view", "t", "transpose", "permute", "expand", "slice", "unsqueeze", "_unsafe_view", "reshape", "select", "alias",
     "detach", "split", "split_with_sizes", "squeeze", "chunk", "unbind", "as_strided", "_reshape_alias", "unfold",
     "empty_like", "empty", "new_empty", "lift_fresh", "unsafe_chunk", "diagonal")
)  # fmt: skip
# Kernels of aten operators that launch more than one (profiles of torch 2.11 on Hopper)
LAUNCHES: dict[str, Callable[[list[Any], list[Any]], int]] = {
    "slice_backward": lambda ins, outs: 2 if ins and ins[0].numel() else 1,
    "masked_fill": lambda ins, outs: 2,
    "native_layer_norm_backward": lambda ins, outs: 2,
    "topk": lambda ins, outs: 2,
    "histc": lambda ins, outs: 2,
    "cumsum": lambda ins, outs: 2,
    "_grouped_mm": lambda ins, outs: 2,
    "sum": lambda ins, outs: 2 if _columns(ins[0], outs[0]) else 1,
    "sort": lambda ins, outs: 3 if ins[0].numel() <= 4096 else 21,
    "index_put": lambda ins, outs: 7,
    "attention_forward": lambda ins, outs: 2,
    "attention_backward": lambda ins, outs: 6 if ins[0].shape[1] > ins[1].shape[1] else 4,
}


def _columns(given: torch.Tensor, result: torch.Tensor) -> bool:
    """A sum over all rows down to one row of columns: its semaphores need a memset."""
    return given.dim() >= 2 and result.numel() == given.shape[-1] and given.numel() > result.numel()


class Trace(TorchDispatchMode):
    """Counts kernels by aten operator."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.name().split("::")[1].split(".")[0]
        if name not in VIEWS:
            ins = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, torch.Tensor)]
            outs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            several = LAUNCHES.get(name)
            self.kernels[name] = self.kernels.get(name, 0) + (several(ins, outs) if several else 1)
        return result


@torch.library.custom_op("trace::attention_forward", mutates_args=())
def attention_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError


@attention_forward.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty(*q.shape[:-1], v.shape[-1])
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("trace::attention_backward", mutates_args=())
def attention_backward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError


@attention_backward.register_fake
def _(q: Any, k: Any, v: Any, out: Any, lse: Any, grad: Any) -> Any:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)  # nobody reads the statistics
    ctx.save_for_backward(*inputs, *output)


def _back(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> Any:
    q, k, v, out, lse = ctx.saved_tensors
    return attention_backward(q, k, v, out, lse, grad)


attention_forward.register_autograd(_back, setup_context=_keep)


@contextmanager
def opaque_attention() -> Iterator[None]:
    """scaled_dot_product_attention as one operator each way, whatever its mask."""
    real = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = lambda q, k, v, *a, **kw: attention_forward(q, k, v)[0]
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = real


def build(family: str, keys: dict[str, Any], layers: int) -> tuple[torch.nn.Module, dict[str, Any]]:
    depth = "n_layer" if "n_embd" in keys or family == "bloom" else "num_hidden_layers"
    config = AutoConfig.for_model(family, **{**keys, depth: layers}, use_cache=False)
    for name in ("attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout", "dropout", "resid_dropout",
                 "embedding_dropout", "residual_dropout", "embd_dropout", "attention_probs_dropout_prob"):  # fmt: skip
        if hasattr(config, name):
            setattr(config, name, 0.0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    return model.train(), config.to_dict()


def flops(model: torch.nn.Module, train: bool) -> int:
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        loss = model(input_ids=ids, labels=ids).loss
        if train:
            loss.backward()
    return counter.get_total_flops()


def trace(model: torch.nn.Module) -> tuple[dict[str, int], dict[str, int], int]:
    """(forward kernels, backward kernels, saved bytes) of one step."""
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long, device="meta")
    owned = {p.untyped_storage()._cdata for p in [*model.parameters(), *model.buffers(), ids]}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in owned:
            saved[storage._cdata] = storage
        return tensor

    forward, backward = Trace(), Trace()
    with opaque_attention(), saved_tensors_hooks(pack, lambda tensor: tensor):
        with forward:
            loss = model(input_ids=ids, labels=ids).loss
        with backward:
            loss.backward()
    return forward.kernels, backward.kernels, sum(storage.nbytes() for storage in saved.values())


def difference(deep: dict[str, int], shallow: dict[str, int]) -> dict[str, int]:
    return {name: n for name in sorted(deep) if (n := deep[name] - shallow.get(name, 0))}


def measure(family: str, keys: dict[str, Any]) -> dict[str, Any]:
    shallow, config = build(family, keys, 2)
    deep, _ = build(family, keys, 3)
    forward = flops(shallow, False)
    shallow.zero_grad(set_to_none=True)
    train = flops(shallow, True)
    f2, b2, s2 = trace(shallow)
    f3, b3, s3 = trace(deep)
    stated = {
        key: value for key, value in config.items() if value is not None and key not in ("architectures", "id2label")
    }
    return {
        "config": {**stated, "model_type": family},
        "forward_flops": forward,
        "train_flops": train,
        "layer_forward_kernels": difference(f3, f2),
        "layer_backward_kernels": difference(b3, b2),
        "layer_saved_bytes": s3 - s2,
    }


def main() -> None:
    transformers.masking_utils.find_packed_sequence_indices = lambda ids: None  # reads a value: impossible on meta
    chosen = sys.argv[1:] or FAMILIES
    models = {}
    for family in chosen:
        try:
            models[family] = measure(family, FAMILIES[family])
        except (
            ValueError,
            RuntimeError,
        ) as error:  # a family that cannot run on meta is listed with its reason, not dropped
            models[family] = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(family, models[family].get("error", "counted"), file=sys.stderr)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    today = datetime.date.today().isoformat()
    json.dump(
        {"date": today, "versions": versions, "batch": BATCH, "sequence": SEQUENCE, "models": models},
        sys.stdout,
        indent=1,
    )


if __name__ == "__main__":
    main()
