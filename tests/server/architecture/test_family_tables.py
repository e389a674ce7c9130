"""The tables are sound: every key lands where a builder looks, every family can be read from its model_type alone."""

import json
import tomllib
from importlib.resources import files

import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import count, read
from tilewise.server.architecture.families import family, key_rules, names, read_in_part, unread

FOLDER = files("tilewise.server.architecture").joinpath("families")


@pytest.mark.parametrize("name", names())
def test_every_key_lands_on_a_value_the_family_has(name: str) -> None:
    table = family(name)
    unknown = {target for targets in table.keys.values() for target in targets} - set(table.values)
    assert not unknown


@pytest.mark.parametrize("name", names())
def test_every_table_states_where_its_facts_are_read(name: str) -> None:
    assert tomllib.loads(FOLDER.joinpath(f"{name}.toml").read_text())["source"]


@pytest.mark.parametrize("name", names())
def test_a_config_of_the_model_type_alone_is_read_or_says_what_is_needed(name: str) -> None:
    try:
        counted = count(read(json.dumps({"model_type": name})))
    except InvalidInput as error:
        assert "needed" in error.message
    else:
        assert 0 < int(counted.active) <= int(counted.total)


def test_limits_keep_any_count_within_64_bits() -> None:
    limits = key_rules().limits
    layer = 3 * limits["num_experts"] * limits["hidden_size"] * limits["moe_intermediate_size"]
    assert layer * limits["num_hidden_layers"] < 2**63


def test_every_model_type_of_the_library_is_read_answered_in_part_or_refused_with_a_reason() -> None:
    transformers = pytest.importorskip("transformers")
    if transformers.__version__ != "5.17.0":
        pytest.skip("unread.toml lists the model types of 5.17")
    library = set(transformers.CONFIG_MAPPING.keys())
    assert library <= {*names(), *read_in_part(), *unread()}
    assert not set(unread()) & {*names(), *read_in_part()}
    assert {*read_in_part(), *unread()} <= library


@pytest.mark.parametrize(
    "model_type",
    [
        "sam",
        "rwkv",
        "xlstm",
        "blt",
        "zaya",
        "jetmoe",
        "t5gemma",
        "reformer",
        "wav2vec2",
        "timesfm",
        "grounding-dino",
        "swin",
    ],
)
def test_a_known_model_type_that_is_not_read_is_refused_with_its_reason(model_type: str) -> None:
    """Also where it holds a text part that is known: what finds objects by a BERT is no BERT."""
    config = {"model_type": model_type, "text_config": {"model_type": "bert"}}
    with pytest.raises(InvalidInput, match=f"model_type {model_type} is known and not read: "):
        read(json.dumps(config))
    assert read(json.dumps({"model_type": model_type, "tilewise_read_as": "llama"})).family == "llama"


@pytest.mark.parametrize(
    ("model_type", "keys", "says"),
    [
        ("albert", {"num_hidden_groups": 13}, "13 groups of layers that share weights are more than the layers"),
        ("albert", {"num_hidden_groups": 0}, "num_hidden_groups 0 is out of range"),
        ("albert", {"inner_group_num": 2}, "inner_group_num = 2 is not supported"),
        ("xlm", {"asm": True}, "asm = True is not supported"),
        ("roformer", {"embedding_size": 768, "rotary_value": True}, "rotary_value = True is not supported"),
        ("roformer", {}, "embedding_size is needed and not given"),
        ("doge", {"is_moe": True}, "is_moe = True is not supported"),
        ("esmc", {"head_dim": 128}, "the output projection is square"),
        ("switch_transformers", {"tie_word_embeddings": False}, "tie_word_embeddings = False is not supported"),
        ("switch_transformers", {"num_sparse_encoder_layers": -1}, "num_sparse_encoder_layers -1 is out of range"),
        ("mvp", {"use_prompt": True}, "use_prompt = True is not supported"),
        ("modernbert-decoder", {"local_attention": 100}, "local_attention = 100 is not supported: it must be 2"),
        ("bert-generation", {"add_cross_attention": True}, "add_cross_attention = True is not supported"),
        ("rembert", {"tie_word_embeddings": True}, "tie_word_embeddings = True is not supported"),
        ("vipllava", {"vision_feature_layers": "last"}, "vision_feature_layers must be a list"),
        ("diffllama", {"num_key_value_heads": 1}, "num_key_value_heads 1 is no multiple of"),
    ],
)
def test_what_a_class_cannot_be_is_refused_by_its_key(model_type: str, keys: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(json.dumps({"model_type": model_type, **keys}))
