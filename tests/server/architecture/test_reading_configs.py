"""What the small configs of our own say, counted by hand."""

import json
from pathlib import Path

import pytest

from tilewise.server.architecture import count, read
from tilewise.server.architecture.model import Attention, Experts, Mlp, Recurrent

CONFIGS = Path(__file__).resolve().parents[2] / "fixtures" / "configs"


def config(name: str) -> str:
    return (CONFIGS / name).read_text()


def changed(name: str, **values: object) -> str:
    return json.dumps({**json.loads(config(name)), **values})


def test_a_llama_is_counted_as_by_hand() -> None:
    layer = 256 * 256 * 2 + 2 * 256 * 64 + 3 * 256 * 688 + 2 * 256
    counted = count(read(config("llama_like.json")))
    assert counted.total == counted.active == 4 * layer + 2 * 1000 * 256 + 256
    assert counted.parts == {
        "embedding": 256_000,
        "lm_head": 256_000,
        "attention": 4 * (256 * 256 * 2 + 2 * 256 * 64),
        "mlp": 4 * 3 * 256 * 688,
        "norm": 9 * 256,
    }


def test_gpt2_key_names_its_fused_qkv_and_its_absent_n_inner_are_understood() -> None:
    architecture = read(config("gpt2_like.json"))
    (block,) = architecture.stacks[0].blocks
    attention, mlp = block.mixers[0], block.feed_forward
    assert isinstance(attention, Attention) and isinstance(mlp, Mlp)
    assert [(linear.inputs, linear.outputs, linear.bias) for linear in attention.projections] == [
        (192, 576, True),
        (192, 192, True),
    ]
    assert mlp.width == 4 * 192 and not mlp.gated and len(mlp.projections) == 2
    layer = 4 * 192 * 192 + 4 * 192 + 8 * 192 * 192 + 5 * 192 + 4 * 192
    assert count(architecture).total == 3 * layer + (1009 + 512) * 192 + 2 * 192


def test_a_mixture_counts_all_experts_and_activates_those_a_token_visits() -> None:
    counted = count(read(config("mixtral_like.json")))
    expert = 3 * 128 * 448
    assert counted.parts["experts"] == 2 * 8 * expert
    assert counted.total - counted.active == 2 * 6 * expert


def test_latent_attention_keeps_its_two_widths_and_its_low_ranks() -> None:
    dense, sparse = read(config("deepseek_like.json")).stacks[0].blocks
    attention = dense.mixers[0]
    assert isinstance(attention, Attention) and attention.latent is not None
    assert (attention.head_dim, attention.head_dim_v) == (48, 32)
    assert (attention.latent.kv_rank, attention.latent.rope_dim, attention.latent.q_rank) == (64, 16, 96)
    assert dense.layers == (0,) and isinstance(dense.feed_forward, Mlp)
    assert sparse.layers == (1, 2, 3, 4) and isinstance(sparse.feed_forward, Experts)
    assert sparse.feed_forward.shared is not None and sparse.feed_forward.shared.width == 96


def test_prediction_layers_that_are_not_counted_are_named_in_the_notes() -> None:
    assert any("MTP" in note for note in read(config("deepseek_like.json")).notes)


def test_a_multimodal_config_is_unwrapped_and_its_towers_are_reported_apart() -> None:
    architecture = read(config("gemma3_like.json"), name="mine")
    vision, decoder = architecture.stacks
    assert (architecture.family, architecture.model_type, architecture.name) == ("gemma3_text", "gemma3", "mine")
    assert (vision.role, vision.tokens, vision.projector_tokens) == ("vision", 256, 64)
    assert (decoder.role, decoder.hidden) == ("text", 256)
    layer = 4 * (128 * 128 + 128) + 2 * 128 * 256 + 256 + 128 + 2 * 256
    tables = 3 * 14 * 14 * 128 + 128 + 256 * 128
    projector = 128 * 256 + 128
    parts = count(architecture).parts
    assert parts["vision"] == 2 * layer + tables + 256 + projector
    assert parts["embedding"] == 1024 * 256


def test_local_and_global_layers_are_two_blocks_and_only_one_has_the_window() -> None:
    local, full = read(config("gemma3_like.json")).stacks[1].blocks
    assert (local.layers, full.layers) == ((0, 1, 2, 3, 4), (5,))
    assert [block.mixers[0].window for block in (local, full) if isinstance(block.mixers[0], Attention)] == [128, 0]


def test_our_own_toml_describes_a_shape_that_exists_nowhere() -> None:
    architecture = read(config("shape.toml"))
    layers = {index: block for block in architecture.stacks[0].blocks for index in block.layers}
    windows = [
        mixer.window for _, block in sorted(layers.items()) for mixer in block.mixers if isinstance(mixer, Attention)
    ]
    assert windows == [512, 512, 512, 0] * 3
    assert [isinstance(block.feed_forward, Experts) for _, block in sorted(layers.items())] == [False] * 2 + [True] * 10
    assert architecture.tied
    attention = 2 * 1024 * 16 * 96 + 2 * 1024 * 4 * 96
    sparse = 33 * 3 * 1024 * 512 + 32 * 1024
    norms = 25 * 1024
    assert count(architecture).total == 12 * attention + 2 * 3 * 1024 * 2816 + 10 * sparse + norms + 32000 * 1024


def test_a_plain_and_a_gated_mlp_differ_by_one_matrix() -> None:
    text = config("shape.toml").split("window")[0]
    gated, plain = read(text), read(text + "gated = false\n")
    assert count(gated).total - count(plain).total == 12 * 1024 * 2816  # type: ignore[operator]


def test_a_tied_table_is_counted_once_and_an_untied_head_has_its_own() -> None:
    tied = read(changed("llama_like.json", tie_word_embeddings=True))
    untied = read(config("llama_like.json"))
    assert tied.head == untied.head and tied.tied and not untied.tied
    assert count(untied).total - count(tied).total == 1000 * 256  # type: ignore[operator]


def test_head_dim_is_the_configs_own_where_it_states_one() -> None:
    attention = read(changed("llama_like.json", head_dim=64)).stacks[0].blocks[0].mixers[0]
    assert isinstance(attention, Attention) and attention.head_dim == 64
    assert attention.projections[0].outputs == 512 and attention.projections[-1].inputs == 512


def test_fewer_kv_heads_change_the_projections_alone() -> None:
    many, few = (
        read(changed("llama_like.json", num_key_value_heads=heads)).stacks[0].blocks[0].mixers[0] for heads in (8, 2)
    )
    assert isinstance(many, Attention) and isinstance(few, Attention)
    assert (many.heads, many.head_dim) == (few.heads, few.head_dim)
    assert [linear.outputs for linear in many.projections] == [256, 256, 256, 256]
    assert [linear.outputs for linear in few.projections] == [256, 64, 64, 256]


def test_a_hybrid_has_recurrent_layers_with_a_state_and_no_cache() -> None:
    text = json.dumps({"model_type": "qwen3_next", "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2})
    linear, full = read(text).stacks[0].blocks
    mixer = linear.mixers[0]
    assert (linear.layers, full.layers) == ((0, 1, 2), (3,))
    assert isinstance(mixer, Recurrent) and mixer.kind == "gated_delta"
    assert mixer.state_elements == 32 * 128 * 128 + (2 * 16 * 128 + 32 * 128) * 3


def test_an_encoder_decoder_has_two_stacks_and_its_decoder_looks_across() -> None:
    encoder, decoder = read(json.dumps({"model_type": "t5"})).stacks
    assert (encoder.name, decoder.name) == ("encoder", "decoder")
    own, cross = decoder.blocks[0].mixers
    assert isinstance(own, Attention) and isinstance(cross, Attention)
    assert own.causal and cross.cross and not cross.causal
    assert not decoder.embeddings


def test_the_class_named_in_the_config_decides_the_head() -> None:
    bare = read(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    masked = read(json.dumps({"model_type": "bert", "architectures": ["BertForMaskedLM"]}))
    labels = read(json.dumps({"model_type": "bert", "architectures": ["BertForTokenClassification"], "num_labels": 9}))
    assert bare.head is None and count(bare).total == 109_482_240
    assert masked.tied and count(masked).total == 109_514_298
    assert labels.head is not None and labels.head.outputs == 9


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.iterdir()))
def test_every_layer_is_in_exactly_one_block(name: str) -> None:
    for stack in read(config(name)).stacks:
        layers = sorted(index for block in stack.blocks for index in block.layers)
        assert layers == list(range(len(layers)))
        assert all(block.count == len(block.layers) for block in stack.blocks)
