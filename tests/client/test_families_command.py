"""`tilewise families`, and models that are no known family."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewise.client.cli import cli
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import count, read
from tilewise.server.architecture.families import names

LLAMA = {"hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 8,
         "num_key_value_heads": 8, "vocab_size": 1000}  # fmt: skip


def run(*arguments: str) -> str:
    return CliRunner().invoke(cli, arguments).output


def test_every_family_is_listed_with_its_source() -> None:
    listed = json.loads(run("families", "--format", "json"))["families"]
    assert [each["name"] for each in listed] == list(names())
    assert all(each["source"] and each["program"] for each in listed)


def test_one_family_is_shown_with_its_limits() -> None:
    shown = run("families", "deepseek_v3")
    assert "moe_layer_freq must be 1" in shown and len(shown.splitlines()) == 2


def test_a_model_read_as_another_family_says_so(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "of_my_own", **LLAMA}))
    asked = ("predict", str(file), "--gpu", "h100-sxm5-80gb", "--phase", "prefill", "--seq", "512")
    assert "note: model_type of_my_own is read as llama, as asked" in run(*asked, "--as", "llama")


def test_the_text_part_of_an_unknown_model_is_answered_alone_and_the_note_says_so() -> None:
    text = {"model_type": "llama", **LLAMA, "tie_word_embeddings": False}
    whole = read(
        json.dumps({"model_type": "of_my_own", "thinker_config": {"text_config": text}, "vision_config": {"depth": 4}})
    )
    assert count(whole).total == count(read(json.dumps(text))).total
    assert whole.notes[0].startswith(
        "model_type of_my_own is not known: its text part thinker_config.text_config (llama) alone"
    )


@pytest.mark.parametrize(("stated", "says"), [("lama", "the closest: llama"), ("zzz_qqq", "none is close")])
def test_the_closest_name_is_offered_only_where_it_is_close(stated: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(json.dumps({"model_type": stated, **LLAMA}))


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "x", "text_config": {"text_config": {"text_config": {"model_type": "llama"}}}},
        {"model_type": "llama", "tilewise_read_as": ["llama"]},
        {"model_type": "gemma4_text", "per_layer_config": [], "layer_types": []},
        {
            "model_type": "gemma4_text",
            "per_layer_config": {"0": {"head_dim": "wide"}},
            "layer_types": ["full_attention"],
        },
        {"model_type": "gemma4_text", "per_layer_config": {"0": 3}, "layer_types": ["full_attention"] * 2000},
        {"model_type": "qwen3_vl_vision", "depth": 4},
    ],
)
def test_odd_parts_are_refused_in_one_line(config: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(json.dumps(config))
    assert "\n" not in caught.value.message
