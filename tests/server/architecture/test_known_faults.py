"""Files that were once read wrongly or refused, with the counts of the library's own classes (transformers 5.24, meta device)."""

import json
from pathlib import Path

import pytest

from tilewise.server.architecture import count, read, read_with
from tilewise.server.architecture.model import Attention, Experts, Mlp

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
        ("albert_chinese", 10_077_192),
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


FIRST_THREE = [0] * 3 + [1] * 57


@pytest.mark.parametrize(
    ("config", "total"),
    [
        ({"model_type": "glm_moe_dsa", "index_topk_freq": 4, "index_skip_topk_offset": 3}, 743_377_000_704),
        ({"model_type": "glm_moe_dsa", "indexer_types": (["full"] * 3 + ["shared", "shared", "shared", "full"] * 19)[:78]}, 743_377_000_704),
        ({"model_type": "minimax_m3_vl", "vision_config": {}, "text_config": {
            "sparse_attention_config": {"sparse_attention_freq": FIRST_THREE}, "moe_layer_freq": FIRST_THREE}}, 427_040_132_864),
        ({"model_type": "mllama", "text_config": {}, "vision_config": {"image_size": 560}}, 10_670_220_835),
        ({"model_type": "longcat_flash"}, 741_053_585_408),
        ({"model_type": "recurrent_gemma"}, 2_010_263_040),
        ({"model_type": "eurobert"}, 310_266_624),
        ({"model_type": "llada", "d_model": 448, "n_layers": 6, "n_heads": 7, "n_kv_heads": 7, "mlp_hidden_size": 768, "embedding_size": 126464}, 124_327_616),
    ],
)  # fmt: skip
def test_a_family_of_few_stated_sizes_has_the_count_of_its_class(config: dict[str, object], total: int) -> None:
    assert count(read(json.dumps(config))).total == total


def test_layers_that_share_an_indexer_have_none_of_their_own_and_cache_no_keys_for_it() -> None:
    glm = read(json.dumps({"model_type": "glm_moe_dsa", "index_topk_freq": 4, "index_skip_topk_offset": 3}))
    indexers = [(mixer.indexer.shared, len(mixer.indexer.projections), block.count) for block in glm.stacks[0].blocks
                for mixer in block.mixers if isinstance(mixer, Attention) and mixer.indexer is not None]  # fmt: skip
    assert sum(layers for shared, _, layers in indexers if shared) == 57
    assert {projections for shared, projections, _ in indexers if shared} == {0}


def test_a_zero_expert_is_no_work_and_a_token_visits_the_others_as_often_as_even_routing_gives() -> None:
    longcat = read('{"model_type": "longcat_flash"}')
    moe = longcat.stacks[0].blocks[0].feed_forward
    assert isinstance(moe, Experts)
    assert (moe.count, moe.top_k, moe.router.outputs) == (512, 8, 768)


def test_the_tower_that_is_not_read_of_a_known_wrapper_is_named() -> None:
    gemma = read(
        '{"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}, "audio_config": {"hidden_size": 1024}}'
    )
    assert any("audio_config is left out" in note for note in gemma.notes)


@pytest.mark.parametrize(
    ("model_type", "total"),
    [("gemma3n_text", 6_835_235_568), ("zamba2", 2_481_848_336), ("recurrent_gemma", 2_010_263_040), ("olmo_hybrid", 7_430_870_688),
     ("hy_v3", 295_033_528_320), ("eurobert", 310_266_624), ("glm4v", 10_292_777_472), ("mimo_v2_flash", 308_778_768_832),
     ("longcat_flash", 741_053_585_408), ("step3p7", 197_824_847_872)],
)  # fmt: skip
def test_a_class_default_has_the_count_of_its_class(model_type: str, total: int) -> None:
    assert count(read(json.dumps({"model_type": model_type}))).total == total
