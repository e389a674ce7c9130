"""A thousand candidate shapes are one Architecture."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import count, read_with

CONFIGS = Path(__file__).resolve().parents[2] / "fixtures" / "configs"


def text(name: str) -> str:
    return (CONFIGS / name).read_text()


def totals(name: str, **arrays: list[int]) -> np.ndarray:
    overrides = {key: np.array(values, dtype=np.int64) for key, values in arrays.items()}
    return np.asarray(count(read_with(text(name), overrides)).total)


def singly(name: str, **arrays: list[int]) -> list[object]:
    rows = [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]
    return [count(read_with(text(name), row)).total for row in rows]


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("llama_like.json", {"hidden_size": [256, 512, 1024], "intermediate_size": [688, 1376, 2752]}),
        ("llama_like.json", {"num_hidden_layers": [1, 4, 9]}),
        ("gemma3_like.json", {"num_hidden_layers": [1, 6, 13], "head_dim": [64, 128, 256]}),
        ("gpt2_like.json", {"hidden_size": [192, 384], "vocab_size": [1009, 50304]}),
        ("mixtral_like.json", {"num_experts": [4, 8, 16], "intermediate_size": [448, 224, 112]}),
        ("deepseek_like.json", {"num_hidden_layers": [3, 7], "moe_intermediate_size": [96, 128]}),
        ("shape.toml", {"num_attention_heads": [16, 8], "num_experts_per_tok": [2, 4]}),
    ],
)
def test_arrays_count_what_each_candidate_counts_alone(name: str, arrays: dict[str, list[int]]) -> None:
    assert totals(name, **arrays).tolist() == singly(name, **arrays)


@given(st.lists(st.integers(1, 64).map(lambda n: 64 * n), min_size=1, max_size=20))
@settings(deadline=None, max_examples=30)
def test_more_width_is_never_fewer_parameters(widths: list[int]) -> None:
    ordered = sorted(widths)
    assert np.all(np.diff(totals("llama_like.json", hidden_size=ordered)) >= 0)


def test_the_first_candidate_that_does_not_divide_is_named() -> None:
    with pytest.raises(
        InvalidInput, match=r"hidden_size 250 is no multiple of num_attention_heads 8 \(candidate 2\)"
    ) as caught:
        totals("llama_like.json", hidden_size=[256, 512, 250, 130])
    assert caught.value.reason == "NOT_DIVISIBLE"


def test_the_first_candidate_out_of_range_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"vocab_size -5 \(candidate 1\) is out of range"):
        totals("llama_like.json", vocab_size=[1000, -5])


def test_arrays_of_different_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2, 3"):
        totals("llama_like.json", vocab_size=[1000, 2000], hidden_size=[256, 512, 768])


def test_what_decides_the_kinds_of_layers_must_be_one_number() -> None:
    with pytest.raises(InvalidInput, match="one number for all candidates"):
        totals("deepseek_like.json", first_k_dense_replace=[1, 2])


def test_a_key_the_family_lacks_cannot_be_varied() -> None:
    with pytest.raises(InvalidInput, match="llama has no num_experts") as caught:
        totals("llama_like.json", num_experts=[4, 8])
    assert caught.value.reason == "UNKNOWN_KEY"


def test_an_override_reaches_the_text_part_of_a_multimodal_config() -> None:
    small, large = totals("gemma3_like.json", vocab_size=[1024, 2048])
    assert large - small == 1024 * 256
