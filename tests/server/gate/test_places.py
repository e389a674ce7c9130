"""Findings point at the line and column of a key."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.server.gate.places import key_of, place_of, places

KEYS = st.text(st.characters(exclude_characters=".", exclude_categories=("Cs",)), min_size=1, max_size=8)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6), st.sampled_from([None, 1, 4]), st.booleans())
def test_every_key_of_any_json_is_found_where_it_stands(
    data: dict[str, object], indent: int | None, ascii: bool
) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=ascii)
    found = places(text)
    lines = text.split("\n")
    assert set(data) <= set(found)
    for path, place in found.items():
        rest = lines[place.line - 1][place.column - 1 :]
        assert rest.startswith(json.dumps(path.rpartition(".")[2], ensure_ascii=ascii))


def test_a_family_s_own_key_states_the_canonical_size() -> None:
    text = '{\n "model_type": "gpt2",\n "n_embd": 768,\n "vocab_size": 50257\n}'
    assert key_of(text, "hidden_size") == "n_embd"
    assert place_of(text, "n_embd") == (3, 2)


def test_a_key_of_the_text_part_of_a_multimodal_model_is_found() -> None:
    text = '{"model_type": "llava", "text_config": {"model_type": "llama",\n"vocab_size": 32001}}'
    assert key_of(text, "vocab_size") == "text_config.vocab_size"
    assert place_of(text, "text_config.vocab_size") == (2, 1)


def test_a_shape_in_toml_has_places_too() -> None:
    assert place_of("[model]\nhidden_size = 64\n  vocab_size = 8\n", "vocab_size") == (3, 3)
    assert place_of("", "vocab_size") is None and place_of("[1, 2", "x") is None
