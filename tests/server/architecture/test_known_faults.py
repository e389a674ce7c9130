"""Files that were once read wrongly or refused, with the counts of the library's own classes (transformers 5.24, meta device)."""

import json
from pathlib import Path

import pytest

from tilewise.server.architecture import count, read, read_with
from tilewise.server.architecture.model import Experts, Mlp

FAULTS = Path(__file__).with_name("faults")


def text(name: str) -> str:
    return (FAULTS / f"{name}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("falcon_mamba", 7_272_665_088),
        ("nemotron_h_latent", 6_965_246_336),
        ("jamba_one_expert", 3_029_337_472),
        ("lfm2", 354_483_968),
        ("granite-4.0-h-micro", 3_191_396_096),
        ("phi-tiny-moe", 3_755_220_288),
        ("qwen3_5_moe_text", 2_419_804_697_984),
        ("deepseek_inference_without_q_rank", 15_706_484_224),
        ("minicpm3_saved", 4_073_875_968),
        ("kimi_k25", 1_026_879_353_328),
        ("kimi_linear", 49_122_675_072),
    ],
)
def test_a_file_has_the_count_of_its_class(name: str, total: int) -> None:
    assert count(read(text(name))).total == total


@pytest.mark.parametrize(
    ("layers", "total"),
    [(8, 5_936_131_008), (9, 6_730_596_352), (14, 10_702_923_072), (20, 15_469_715_136), (27, 21_030_972_544), (28, 21_825_437_888)],
)  # fmt: skip
def test_the_expert_layers_of_ernie_end_at_the_stated_one_or_the_last(layers: int, total: int) -> None:
    assert count(read_with(text("ernie4_5_moe"), {"num_hidden_layers": layers})).total == total


def test_one_expert_is_a_dense_layer_without_a_router() -> None:
    assert all(isinstance(block.feed_forward, Mlp) for block in read(text("jamba_one_expert")).stacks[0].blocks)


def test_experts_in_a_latent_width_have_matrices_into_it_and_out_of_it() -> None:
    moe = next(
        b.feed_forward for b in read(text("nemotron_h_latent")).stacks[0].blocks if isinstance(b.feed_forward, Experts)
    )
    assert [(linear.inputs, linear.outputs) for linear in moe.latent] == [(4096, 1024), (1024, 4096)]
    assert moe.inputs == 1024


def test_the_list_of_attention_types_that_minimax_publishes_is_read() -> None:
    sizes = {"hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
             "head_dim": 128, "num_local_experts": 32, "vocab_size": 200064}  # fmt: skip
    config = {"model_type": "minimax", **sizes, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10}
    assert round(count(read(json.dumps(config))).total / 1e9) == 456  # as published
    del config["attn_type_list"]
    assert count(read(json.dumps(config))).total == 451_937_048_576  # as the class reads it: every other layer


def test_a_stated_inner_width_wins_over_the_expansion() -> None:
    config = {**json.loads(text("falcon_mamba")), "model_type": "mamba"}
    assert count(read(json.dumps(config))).total == count(read(text("falcon_mamba"))).total
