"""Our counts against torch's on transformers' own models: tests/tools/trace_transformers.py wrote the file."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.table import Kind, OperatorTable
from tilewise.server.architecture import read
from tilewise.server.operators import walk
from tilewise.server.operators.conventions import by_shape, full_flops
from tilewise.server.operators.emitter import Emitter
from tilewise.server.workload import Workload

COUNTS = json.loads((Path(__file__).parent / "transformers_counts.json").read_text(encoding="utf-8"))
MODELS = {family: model for family, model in COUNTS["models"].items() if "error" not in model}
# The router's few kernels by groups of experts, and sdpa's math path, agree within 4 % (programs.csv), not to the kernel
NEAR = {"deepseek_v3", "falcon"}
EXACT = sorted(set(MODELS) - NEAR)


def emit(family: str, phase: str) -> Emitter:
    options = {"logits": "all"} if phase == "prefill" else {"optimizer": "none"}
    workload = Workload(
        phase=phase, batch=COUNTS["batch"], sequence=COUNTS["sequence"], stack="transformers", **options
    )
    return walk(read(json.dumps(MODELS[family]["config"])), workload)


def layer_rows(table: OperatorTable) -> np.ndarray:
    """Rows of the decoder's layers, not of what surrounds them."""
    labels = [label.layer.startswith("decoder.") and label.layer[8].isdigit() for label in table.labels]
    return np.array(labels)[table.label]


@pytest.mark.parametrize("family", sorted(MODELS))
@pytest.mark.parametrize("phase", ["prefill", "train"])
def test_flops_equal_torchs_counter_except_for_grouped_gemms_which_it_does_not_see(family: str, phase: str) -> None:
    table = emit(family, phase).table()
    unseen = by_shape(table, np.where(table.kind == Kind.GROUPED_GEMM, table.flops, 0.0))
    counted = MODELS[family]["train_flops" if phase == "train" else "forward_flops"]
    assert full_flops(table)[0] - unseen[0] == pytest.approx(counted, rel=1e-12)


@pytest.mark.parametrize("family", EXACT)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_kernels_of_a_layer_are_those_that_transformers_launches(family: str, direction: str) -> None:
    table = emit(family, "train").table()
    way = np.array([label.direction == direction for label in table.labels])[table.label]
    rows = way & layer_rows(table)
    layers = MODELS[family]["config"].get("num_hidden_layers", MODELS[family]["config"].get("n_layer"))
    launched = np.sum((table.count * table.kernels)[rows]) / layers
    assert launched == sum(MODELS[family][f"layer_{direction}_kernels"].values())


@pytest.mark.parametrize("family", EXACT)
def test_activations_kept_for_the_backward_are_those_that_autograd_packs(family: str) -> None:
    emitted = emit(family, "train")
    layers = [name for name in emitted.repeats if name.startswith("decoder.") and name[8].isdigit()]
    saved = sum(emitted.repeats[layer] * emitted.saved[layer] for layer in layers)
    assert saved / sum(emitted.repeats[layer] for layer in layers) == pytest.approx(
        MODELS[family]["layer_saved_bytes"], rel=3e-3
    )


def test_the_counter_gives_no_flops_for_attention_on_the_cpu_and_we_never_take_that_for_truth() -> None:
    """G19: scaled_dot_product_attention of (1, 12, 64, 64)."""
    keys = {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12, "intermediate_size": 64}
    text = json.dumps({"model_type": "llama", "vocab_size": 64, "num_hidden_layers": 1, **keys})
    table = walk(read(text), Workload(phase="prefill", batch=1, sequence=64)).table()
    attention = table.select(table.kind == Kind.ATTENTION)
    assert full_flops(attention)[0] == 12_582_912
