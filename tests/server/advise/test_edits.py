"""Free wins: what is proposed for one size, and what the good shapes of this world are told."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.server.advise.edits import Edit, single_edits
from tilewise.server.advise.proposals import nearby, paddings, proposals
from tilewise.server.advise.subject import Subject
from tilewise.server.workload import Workload

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 4, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
TRAIN = Workload(phase="train", batch=4, sequence=2048, mode="compiled")
EAGER = Workload(phase="train", batch=4, sequence=2048, mode="eager")  # torch.compile pads odd products by itself
H100 = Database.packaged().gpu("h100-sxm5-80gb")


def edits(config: dict[str, object], workload: Workload = TRAIN, **changed: int) -> list[Edit]:
    return single_edits(json.dumps({**config, **changed}), {}, workload, H100)


def test_a_vocabulary_off_the_fast_kernels_is_padded_first() -> None:
    first = edits(GPT2, EAGER)[0]
    assert (first.field, first.before, first.after) == ("vocab_size", 50257, 50304)
    assert first.high < 0.9 and first.parameter_change == 47 * 768


def test_a_width_of_odd_words_moves_to_whole_lines_nearby() -> None:
    found = [edit for edit in edits(LLAMA, EAGER, intermediate_size=14330) if edit.field == "intermediate_size"]
    assert found and found[0].after % 64 == 0 and abs(found[0].after - 14330) < 300 and found[0].high < 1


def test_heads_of_eighty_are_cut_into_heads_that_kernels_have() -> None:
    found = [
        e
        for e in edits({**GPT2, "n_embd": 2560, "n_head": 32, "vocab_size": 50304})
        if e.field == "num_attention_heads"
    ]
    assert found and 2560 // found[0].after in (64, 128) and found[0].parameter_change == 0


def test_a_good_shape_has_no_sure_free_win() -> None:
    assert [edit for edit in edits(LLAMA) if edit.high < 1] == []


def test_a_smaller_model_is_no_win_by_itself() -> None:
    """Where parameters are taken away, time must fall by more than they do."""
    own = Subject(json.dumps(LLAMA), {}).parameters
    for edit in edits(LLAMA):
        assert 1 - edit.time_ratio > max(0.0, -edit.parameter_change / own)


def test_key_and_value_heads_keep_their_share_of_the_heads() -> None:
    subject = Subject(json.dumps({**LLAMA, "hidden_size": 2560, "num_attention_heads": 32}), {})
    for sizes in proposals(subject, "num_attention_heads", 1):
        assert sizes["num_attention_heads"] == 4 * sizes["num_key_value_heads"]


def test_what_tensor_parallelism_splits_stays_divisible() -> None:
    subject = Subject(json.dumps({**LLAMA, "vocab_size": 128257}), {})
    assert all(sizes["intermediate_size"] % (64 * 8) == 0 for sizes in proposals(subject, "intermediate_size", 8))
    assert all(sizes["vocab_size"] % (64 * 8) == 0 for sizes in proposals(subject, "vocab_size", 8))


@given(st.integers(1, 300_000), st.sampled_from([1, 2, 3, 4, 8]))
def test_padding_only_ever_adds_and_less_than_the_widest_tile(size: int, split: int) -> None:
    for padded in paddings(size, split):
        assert size < padded < size + 256 * split and padded % (64 * split) == 0


@given(st.integers(1, 100_000), st.sampled_from([64, 128, 512]))
def test_nearby_values_are_near_and_whole(size: int, grain: int) -> None:
    values = np.array(nearby(size, grain, 0.05), float)
    # A value exactly 5 % away belongs to them, so the bound leaves room for the rounding of 0.05 itself.
    assert (
        np.all(values % grain == 0) and np.all(abs(values - size) <= 0.05 * size * (1 + 1e-12)) and size not in values
    )


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_serving_is_advised_too(phase: str) -> None:
    work = Workload(
        phase=phase, batch=8, sequence=2048 if phase == "prefill" else 0, context=2048 if phase == "decode" else 0
    )
    for edit in edits(GPT2, work):
        assert edit.low <= edit.time_ratio <= edit.high


def siglip(hidden: int, heads: int, width: int) -> dict[str, object]:
    return {"model_type": "siglip_vision_model", "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": width,
            "num_hidden_layers": 12, "image_size": 384, "patch_size": 14}  # fmt: skip


def test_a_tower_with_odd_heads_is_given_heads_that_kernels_have() -> None:
    """G68: 16 heads of 72 and a width of 4304, which its authors forgot to round."""
    found = edits(siglip(1152, 16, 4304), Workload(phase="prefill", batch=32, sequence=1))
    heads = [edit for edit in found if edit.field == "num_attention_heads"]
    assert heads and 1152 // heads[0].after in (64, 96, 128) and heads[0].high < 1
    assert all(edit.after % 64 == 0 for edit in found if edit.field == "intermediate_size")


def test_a_tower_of_880_is_told_896() -> None:
    """G68: heads of 55 lost much; 896 makes them 56 wide, which rows of 16 bytes allow."""
    config = json.dumps(siglip(880, 16, 2320))
    found = single_edits(config, {}, Workload(phase="prefill", batch=32, sequence=1), H100, tolerance=0.03)
    best = {edit.field: edit for edit in found}
    assert (
        best["hidden_size"].after == 896 and best["hidden_size"].time_ratio < 0.95 and best["hidden_size"].high < 1.03
    )
    assert "intermediate_size" not in best or best["intermediate_size"].after == 2304
