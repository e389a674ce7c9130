"""Bad input gives one clear line, whatever it is."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewise.hwdb.errors import InvalidInput, TilewiseError, TooLarge
from tilewise.server.architecture import count, read

CONFIGS = Path(__file__).resolve().parents[2] / "fixtures" / "configs"
TEXTS = {path.name: path.read_text() for path in sorted(CONFIGS.iterdir())}
LLAMA = json.loads(TEXTS["llama_like.json"])


def refusal(text: str) -> TilewiseError:
    with pytest.raises(TilewiseError) as caught:
        read(text)
    assert "\n" not in caught.value.message and len(caught.value.message) < 300
    return caught.value


def without(*keys: str, **values: object) -> str:
    return json.dumps({key: value for key, value in {**LLAMA, **values}.items() if key not in keys})


@pytest.mark.parametrize(
    ("text", "reason", "says"),
    [
        ("", "UNREADABLE_CONFIG", "empty"),
        ("  \n ", "UNREADABLE_CONFIG", "empty"),
        (TEXTS["llama_like.json"][:200], "UNREADABLE_CONFIG", "no valid JSON"),
        ("[1, 2]", "UNREADABLE_CONFIG", "object"),
        ("\"llama\"", "UNREADABLE_CONFIG", "object"),
        ("[" * 100_000, "UNREADABLE_CONFIG", "nested"),
        ("base_emb_dim: 4096\nbase_mlp_dim: 16384\n", "UNREADABLE_CONFIG", "YAML"),
        ("just words", "UNREADABLE_CONFIG", "neither JSON nor TOML"),
        ("[modell]\nhidden_size = 3", "UNREADABLE_CONFIG", "[model]"),
        (without("model_type"), "UNREADABLE_CONFIG", "model_type is missing"),
        (without(model_type="lama"), "UNKNOWN_MODEL_TYPE", "llama"),
        (without(model_type="../../etc/passwd"), "UNKNOWN_MODEL_TYPE", "known"),
        (without(model_type="_base"), "UNKNOWN_MODEL_TYPE", "known"),
        (without("num_key_value_heads", num_attention_heads=7), "NOT_DIVISIBLE", "252 or 259"),
        (without(num_key_value_heads=3), "NOT_DIVISIBLE", "num_key_value_heads"),
        (without(hidden_size=-256), "INVALID_SHAPE", "out of range"),
        (without(num_hidden_layers=0), "INVALID_SHAPE", "out of range"),
        (without(num_key_value_heads=0), "INVALID_SHAPE", "out of range"),
        (without(hidden_size=10**12), "INVALID_SHAPE", "over twelve digits"),
        (without(hidden_size="256"), "INVALID_SHAPE", "whole number"),
        (without(hidden_size=256.5), "INVALID_SHAPE", "whole number"),
        (without(hidden_size=True), "INVALID_SHAPE", "whole number"),
        (without(hidden_size=None), "INVALID_SHAPE", "null"),
        (without(vocab_size=[1]), "INVALID_SHAPE", "whole number"),
        (without(tie_word_embeddings="yes"), "INVALID_SHAPE", "true or false"),
        (without(num_experts=8), "UNKNOWN_KEY", "num_experts"),
        (without(intermediate_sise=9), "UNKNOWN_KEY", "nearest known key is intermediate_size"),
        (without(use_qk_norm=True), "UNKNOWN_KEY", "use_qk_norm"),
        (without(layer_types=["full_attention"]), "INVALID_SHAPE", "lists 1 layers"),
        (without(layer_types=["sliding_attention"] * 4), "INVALID_SHAPE", "sliding_window"),
        (without(layer_types=["banana"] * 4), "INVALID_SHAPE", "banana"),
        ('{"model_type": "mixtral", "num_experts_per_tok": 9}', "INVALID_SHAPE", "more than num_experts 8"),
        (without(hidden_act="banana"), "INVALID_SHAPE", "no activation function"),
        (without(head_dim=127), "INVALID_SHAPE", "turns pairs"),
        (without(rope_theta=-1.0), "INVALID_SHAPE", "more than 0"),
        *(
            (without(rope_scaling={key: kind}), "INVALID_SHAPE", "which is not known; known are axial, deepseek_yarn")
            for key in ("rope_type", "type")
            for kind in ("yarnn", "YARN", "", "ntk-aware", 3, [], {}, True, "default ", "llama4")
        ),
        (without(rope_parameters={"full_attention": {"rope_type": "spiral"}}), "INVALID_SHAPE", "rope_parameters.full_attention"),
        (without(partial_rotary_factor=2.0), "INVALID_SHAPE", "0 to 1"),
        ('{"model_type": "deepseek_v3", "n_group": 7}', "NOT_DIVISIBLE", "no multiple of n_group 7"),
        ('{"model_type": "deepseek_v3", "n_group": 8, "topk_group": 9}', "INVALID_SHAPE", "more than n_group 8"),
        ('{"model_type": "deepseek_v3", "n_group": 8, "topk_group": 2, "num_experts_per_tok": 65}', "INVALID_SHAPE", "more than the 64"),
        ('{"alignment_heads": [], "lang_ids": []}', "UNREADABLE_CONFIG", "CTranslate2"),
        ('{"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.31"}', "UNREADABLE_CONFIG", "diffusers"),
        ('{"model_type": "llava", "text_config": 3}', "INVALID_SHAPE", "text_config must be an object"),
        ('{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}", "UNREADABLE_CONFIG", "JSON"),
        ('{"model_type": "llama", "hidden_size": NaN}', "INVALID_SHAPE", "whole number"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_reason(text: str, reason: str, says: str) -> None:
    error = refusal(text)
    assert isinstance(error, InvalidInput) and error.reason == reason and error.field.startswith("architecture")
    assert says in error.message


def test_a_config_of_ten_megabytes_is_too_large() -> None:
    assert isinstance(refusal(" " * 10_000_000 + "{}"), TooLarge)


def test_a_key_that_changes_nothing_is_accepted_and_so_is_none_of_it() -> None:
    plain = count(read(json.dumps(LLAMA)))
    harmless = {
        "rope_scaling": {"factor": 8.0},
        "num_experts": 0,
        "use_qk_norm": False,
        "_anything": 7,
        "hidden_dropout": 0.1,
    }
    assert count(read(without(**harmless))) == plain


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**14) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
JSONS = {name: json.loads(text) for name, text in TEXTS.items() if name.endswith("json")}
TYPES = st.sampled_from(
    ["llama", "qwen3_next", "nemotron_h", "zamba", "jamba", "deepseek_v4", "llama4", "t5", "esm", "falcon", "mpt", "dbrx",
     "qwen2_vl", "lfm2", "granitemoehybrid", "modernbert", "gemma3", "whisper", "bamba", "exaone4", "ernie4_5_moe"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["hidden_size", "num_attention_heads", "num_hidden_layers", "layer_types", "num_local_experts", "num_experts_per_tok",
     "head_dim", "sliding_window", "text_config", "vision_config", "architectures", "id2label", "hybrid_override_pattern",
     "layers_block_type", "mlp_layer_types", "no_rope_layers", "compress_ratios", "partial_rotary_factor", "rope_scaling",
     "torch_dtype", "attn_layer_indices", "expert_layer_period", "attn_layer_period", "moe_layers", "mlp_only_layers",
     "tie_word_embeddings", "sliding_window_pattern", "moe_layer_end_index", "mamba_d_head", "block_multiple_of",
     "first_k_dense_replace", "q_lora_rank", "n_heads", "attn_config", "mamba_expand", "max_window_layers"]
)  # fmt: skip


@given(TYPES, st.dictionaries(KEYS | st.text(max_size=10), VALUES, max_size=4))
@settings(deadline=None, max_examples=300)
def test_no_config_ends_in_anything_but_an_architecture_or_a_clear_line(
    model_type: str, values: dict[str, object]
) -> None:
    _read_or_refuse(json.dumps({"model_type": model_type, **values}))


@given(st.sampled_from(sorted(JSONS)), st.data())
@settings(deadline=None, max_examples=200)
def test_no_change_of_a_real_config_ends_otherwise(name: str, data: st.DataObject) -> None:
    config = dict(JSONS[name])
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        config[key] = data.draw(VALUES)
    _read_or_refuse(json.dumps(config))


@given(st.sampled_from(sorted(TEXTS)), st.integers(0, 2000), st.text(max_size=5))
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_no_damage_to_the_text_ends_otherwise(name: str, position: int, inserted: str) -> None:
    text = TEXTS[name]
    _read_or_refuse(text[:position] + inserted + text[position + 1 :])


def _read_or_refuse(text: str) -> None:
    try:
        counted = count(read(text))
    except TilewiseError as error:
        assert error.message and "\n" not in error.message
    else:
        assert isinstance(counted.total, int) and 0 < counted.active <= counted.total  # type: ignore[operator]
