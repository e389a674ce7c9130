"""A default of a class that decides an answer is listed for a published config and refused for another one."""

import json

import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import read
from tilewise.server.architecture.stated import check_stated, defaulted

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "vocab_size": 32000,
    "intermediate_size": 5632,
}  # fmt: skip


def without(*keys: str, **more: object) -> str:
    return json.dumps({key: value for key, value in {**LLAMA, **more}.items() if key not in keys})


def test_a_family_s_name_alone_is_refused_with_every_size_that_its_class_would_fill_in() -> None:
    with pytest.raises(
        InvalidInput, match="does not state hidden_size 4096, num_hidden_layers 32, num_attention_heads 32,"
    ):
        check_stated('{"model_type": "llama"}')


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_each_of_the_sizes_that_make_a_shape_must_be_stated(key: str) -> None:
    with pytest.raises(InvalidInput, match=f"does not state {key}") as refused:
        check_stated(without(key))
    assert refused.value.reason == "DEFAULTED_SIZES"
    check_stated(without(key), [key])  # an override states it


def test_a_few_others_are_listed_and_more_are_refused() -> None:
    check_stated(without("intermediate_size"))
    assert read(without("intermediate_size")).notes == ("not stated, so the class's default: intermediate_size 11008",)
    experts = json.dumps({**LLAMA, "model_type": "qwen3_moe"})
    with pytest.raises(InvalidInput, match="num_experts 128"):
        check_stated(experts)


@pytest.mark.parametrize("mark", [{"architectures": ["LlamaForCausalLM"]}, {"transformers_version": "5.0"}])
def test_a_published_file_is_answered_with_the_list(mark: dict[str, object]) -> None:
    text = without("num_attention_heads", "vocab_size", **mark)
    check_stated(text)
    (note,) = read(text).notes
    assert note == "not stated, so the class's default: num_attention_heads 32, vocab_size 32000"


def test_a_size_that_changes_nothing_is_not_listed() -> None:
    assert defaulted(without(), frozenset()) == {}  # max_position_embeddings: no table of positions
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    assert defaulted(json.dumps(gpt2), frozenset()) == {"max_position_embeddings": 1024}


def test_a_shape_of_our_own_has_no_defaults_for_what_makes_it() -> None:
    with pytest.raises(InvalidInput, match="vocab_size is needed and not given"):
        read("[model]\nhidden_size = 512\nnum_hidden_layers = 4\nnum_attention_heads = 4\n")
