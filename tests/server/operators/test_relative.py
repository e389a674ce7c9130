"""T5's kind of attention: a learned bias of every distance that sdpa takes as its mask."""

import json

import numpy as np
import pytest

from tilewise.hwdb.table import OperatorTable
from tilewise.server.architecture import read
from tilewise.server.operators import build
from tilewise.server.workload import Workload

LAYERS = {"num_layers": 3, "num_decoder_layers": 3}


def table(model_type: str, phase: str = "prefill", **keys: object) -> OperatorTable:
    sizes = {"sequence": 256} if phase != "decode" else {"context": 256}
    work = Workload(phase=phase, batch=2, cache="none", stack="transformers", mode="eager", **sizes)  # type: ignore[arg-type]
    return build(read(json.dumps({"model_type": model_type, "d_model": 512, **LAYERS, **keys})), work)


def launches(found: OperatorTable, name: str) -> float:
    rows = np.array([label.name == name for label in found.labels])[found.label]
    return float((found.count * found.kernels)[rows].sum())


@pytest.mark.parametrize(("model_type", "times"), [("t5", 1), ("mt5", 1), ("umt5", 3)])
def test_the_first_layer_makes_the_biases_of_all_or_every_layer_its_own(model_type: str, times: int) -> None:
    found = table(model_type)
    assert launches(found, "relative_bias") == 2 * times  # of the encoder and of the decoder
    assert launches(found, "cross_bias") == times
    assert launches(found, "bias_mask") == (0 if model_type == "umt5" else 5 * 3)


def test_a_biased_attention_computes_every_pair_of_query_and_key() -> None:
    found = table("t5")
    kernels = np.array([label.name == "attention" for label in found.labels])[found.label]
    assert set(found.causal[kernels]) == {0}
    assert np.all(found.executed_flops[kernels] == 4.0 * 2 * 8 * 256 * 256 * 64)


def test_a_new_token_needs_no_mask_but_the_biases_of_its_row() -> None:
    found = table("t5", "decode")
    assert launches(found, "bias_mask") == 0
    assert launches(found, "relative_bias") == 1


@pytest.mark.parametrize(("projection", "kernels"), [("relu", 1), ("gated-silu", 1), ("gated-gelu", 8)])
def test_the_feed_forward_that_t5_names_decides_its_activation(projection: str, kernels: int) -> None:
    assert launches(table("t5", feed_forward_proj=projection), "activation") == 6 * kernels
