"""torch.compile pads products off whole vectors where its own benchmark finds that faster."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.table import Kind, OperatorTable
from tilewise.server.architecture import read
from tilewise.server.operators import build
from tilewise.server.step.padding import padded
from tilewise.server.step.predict import predict
from tilewise.server.step.report import Report
from tilewise.server.workload import Workload

GPU = Database.packaged().gpu("h100-sxm5-80gb")
TRAIN = Workload(phase="train", batch=2, sequence=2048, mode="compiled")


def gpt2(vocabulary: int, **more: Any) -> str:
    return json.dumps(
        {"model_type": "gpt2", "n_embd": 1024, "n_head": 16, "n_layer": 2, "vocab_size": vocabulary, **more}
    )


def table(text: str, workload: Workload = TRAIN) -> OperatorTable:
    return build(read(text), workload)


def step(text: str, workload: Workload = TRAIN) -> Report:
    return predict(GPU, read(text), workload)


def named(found: OperatorTable, name: str) -> np.ndarray:
    return np.array([found.labels[code].name == name for code in found.label.tolist()])


def test_whole_vectors_are_left_alone() -> None:
    whole = table(gpt2(50304))
    assert padded(GPU, whole) is whole


def test_an_odd_vocabulary_is_padded_forward_and_in_both_gradients_with_its_copies() -> None:
    before, after = table(gpt2(50257)), padded(GPU, table(gpt2(50257)))
    heads = named(after, "lm_head") & (after.kind == Kind.GEMM)
    assert heads.sum() == 3 and {50264} <= {
        *after.m[heads].tolist(),
        *after.n[heads].tolist(),
        *after.k[heads].tolist(),
    }
    assert not any(size % 8 for column in (after.m, after.n, after.k) for size in column[heads].tolist())
    assert len(after) == len(before) + 3  # the weight twice, its output's gradient once
    assert (after.flops[: len(before)] == before.flops).all()  # what the model asks for is the same
    assert (after.executed_flops[: len(before)] >= before.executed_flops).all()


def test_a_product_of_few_rows_is_not_padded() -> None:
    decode = Workload(phase="decode", batch=16, context=2048, mode="compiled")
    found = table(gpt2(50257), decode)
    assert padded(GPU, found) is found


def test_the_vocabulary_that_halves_an_eager_step_costs_a_compiled_one_little() -> None:
    def ratio(mode: str) -> float:
        work = Workload(phase="train", batch=2, sequence=2048, mode=mode)
        times = [step(gpt2(vocabulary), work).step.busy.time_s for vocabulary in (50257, 50304)]
        return times[0] / times[1]

    assert ratio("eager") > 1.6
    assert 1.0 < ratio("compiled") < 1.25  # the copies of the weight and of the logits' gradient


@settings(max_examples=20, deadline=None)
@given(vocabulary=st.integers(20_000, 60_000), tokens=st.sampled_from([256, 1000, 2048]))
def test_a_padded_step_is_no_faster_than_its_next_whole_twin_by_more_than_noise(vocabulary: int, tokens: int) -> None:
    work = Workload(phase="train", batch=1, sequence=tokens, mode="compiled")
    odd, whole = (step(gpt2(size), work).step.busy.time_s for size in (vocabulary, -(-vocabulary // 8) * 8))
    assert odd > 0.97 * whole


@pytest.mark.parametrize("mode", ["compiled", "graph"])
def test_a_static_cache_writes_keys_and_values_out_for_every_query_head(mode: str) -> None:
    config = {"model_type": "qwen2", "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12,
              "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 151936}  # fmt: skip
    found = table(json.dumps(config), Workload(phase="decode", batch=16, context=4096, mode=mode))
    copies, attention = named(found, "repeat_kv"), found.kind == Kind.ATTENTION
    assert found.bytes_written[copies].tolist() == [16 * 4096 * 12 * 128 * 2.0]
    assert found.count[copies].tolist() == [4] and (found.kv_heads[attention] == 12).all()


def test_a_dynamic_cache_joins_slices_of_one_product_the_slow_way() -> None:
    eager = Workload(phase="decode", batch=16, context=2048, mode="eager")
    found = table(gpt2(50304), eager)
    joined, slow = named(found, "kv_append"), named(found, "kv_append_slow")
    assert (found.bytes_read[slow] > found.bytes_read[joined]).all()


def test_falcons_one_key_value_head_goes_through_products_in_fp32() -> None:
    config = {"model_type": "falcon", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 2,
              "vocab_size": 65024, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False,
              "bias": False, "alibi": False}  # fmt: skip
    found = table(json.dumps(config), Workload(phase="prefill", batch=2, sequence=2048, stack="transformers"))
    assert not (found.kind == Kind.ATTENTION).any()
    scores = named(found, "scores")
    assert scores.sum() == 1 and found.output_bytes[scores].tolist() == [4] and found.groups[scores].tolist() == [64]


def test_padded_gradients_of_the_logits_take_memory_beside_them() -> None:
    off, whole = (step(gpt2(vocabulary)).memory for vocabulary in (50257, 50304))
    logits = 2 * 2 * 2048 * 50264
    assert off.part("padding") > 2 * logits and whole.part("padding") == 0
    assert off.total_bytes - whole.total_bytes > logits
