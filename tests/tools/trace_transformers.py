"""Counts what transformers' own models do, on the meta device: FLOPs, kernels and what autograd keeps, per layer.

    python tests/tools/trace_transformers.py > tests/server/operators/transformers_counts.json

Needs torch 2.13.0 and transformers 5.17.0 (CPU builds do). For every family a small model of 2 and one of 3 layers is
run forward and backward; a layer is the difference. The output is committed, so that the tests need neither library.

FLOPs: torch's FlopCounterMode. Kernels: what tilewise.server.trace records. Saved: bytes of distinct storages that
autograd packs, parameters and inputs left out.
"""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

import torch
import transformers
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from tilewise.server.trace.kernels import kernels
from tilewise.server.trace.module import record

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


def build(
    family: str, keys: dict[str, Any], layers: int, attention: str = "sdpa"
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """A small model on the meta device, without dropout, and its config."""
    depth = "n_layer" if "n_embd" in keys or family == "bloom" else "num_hidden_layers"
    config = AutoConfig.for_model(family, **{**keys, depth: layers}, use_cache=False)
    for name in ("attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout", "dropout", "resid_dropout",
                 "embedding_dropout", "residual_dropout", "embd_dropout", "attention_probs_dropout_prob"):  # fmt: skip
        if hasattr(config, name):
            setattr(config, name, 0.0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.bfloat16)
    stated = {
        key: value
        for key, value in config.to_dict().items()
        if value is not None and key not in ("architectures", "id2label")
    }
    return model.train(), {**stated, "model_type": family}


def assume_unpacked_batches() -> None:
    """transformers looks whether a batch is packed by reading position ids, which have no values on the meta device."""
    transformers.masking_utils.find_packed_sequence_indices = lambda ids: None


def flops(model: torch.nn.Module, train: bool) -> int:
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        loss = model(input_ids=ids, labels=ids).loss
        if train:
            loss.backward()
    return counter.get_total_flops()


def traced(model: torch.nn.Module) -> tuple[dict[str, int], dict[str, int], int]:
    """(forward kernels, backward kernels, saved bytes) of one step."""
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long, device="meta")
    owned = {p.untyped_storage()._cdata for p in [*model.parameters(), *model.buffers(), ids]}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in owned:
            saved[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        calls = record(model, input_ids=ids, labels=ids)
    launched: dict[str, dict[str, int]] = {"forward": {}, "backward": {}}
    for call in calls:
        by_name = launched[call.direction]
        by_name[call.name] = by_name.get(call.name, 0) + kernels(call.name, call.ins, call.outs)
    return launched["forward"], launched["backward"], sum(storage.nbytes() for storage in saved.values())


def difference(deep: dict[str, int], shallow: dict[str, int]) -> dict[str, int]:
    return {name: n for name in sorted(deep) if (n := deep[name] - shallow.get(name, 0))}


def measure(family: str, keys: dict[str, Any]) -> dict[str, Any]:
    shallow, config = build(family, keys, 2)
    deep, _ = build(family, keys, 3)
    forward = flops(shallow, False)
    shallow.zero_grad(set_to_none=True)
    train = flops(shallow, True)
    f2, b2, s2 = traced(shallow)
    f3, b3, s3 = traced(deep)
    return {
        "config": config,
        "forward_flops": forward,
        "train_flops": train,
        "layer_forward_kernels": difference(f3, f2),
        "layer_backward_kernels": difference(b3, b2),
        "layer_saved_bytes": s3 - s2,
    }


def main() -> None:
    assume_unpacked_batches()
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
