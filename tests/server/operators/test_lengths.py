"""Lengths beyond a model's positions, and attention that sdpa has no kernel for."""

import json
from typing import Any

import numpy as np
import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import read
from tilewise.server.architecture.model import Architecture
from tilewise.server.operators import build
from tilewise.server.operators.lengths import check_length, length_notes
from tilewise.server.workload import Workload


def model(model_type: str, **keys: Any) -> Architecture:
    return read(json.dumps({"model_type": model_type, "architectures": ["X"], **keys}))


@pytest.mark.parametrize(
    ("model_type", "longest"),
    [("gpt2", 1024), ("opt", 2048), ("bert", 512), ("gptj", 2048), ("codegen", 2048), ("mpt", 2048), ("marian", 1024),
     ("gpt_neo", 2048), ("biogpt", 1024), ("electra", 512), ("whisper", 448), ("roberta", 510)],
)  # fmt: skip
def test_a_sequence_ends_where_the_table_of_positions_does(model_type: str, longest: int) -> None:
    arch = model(model_type)
    check_length(arch, Workload(phase="prefill", sequence=longest))
    with pytest.raises(InvalidInput, match=f"it has {longest} rows") as error:
        check_length(arch, Workload(phase="prefill", sequence=longest + 1))
    assert error.value.field == "workload.sequence"


@pytest.mark.parametrize("model_type", ["llama", "bloom", "t5", "m2m_100", "mamba"])
def test_positions_without_a_table_have_no_end(model_type: str) -> None:
    check_length(model(model_type), Workload(phase="prefill", sequence=65536))


def test_decode_ends_there_too() -> None:
    with pytest.raises(InvalidInput, match="context 1025 is longer than the position table of gpt2"):
        check_length(model("gpt2"), Workload(phase="decode", context=1025))


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        (None, 2048),
        ({"rope_type": "linear", "factor": 4.0}, 8192),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}, 4096),
        ({"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512}, 2048),
        ({"rope_type": "llama3", "factor": 8.0}, 2048),
        ({"rope_type": "dynamic", "factor": "4"}, 2048),
        ({"rope_type": "linear", "factor": float("inf")}, 2048),
        ({}, 2048),
    ],
)
def test_a_length_beyond_the_config_is_noted(scaling: dict[str, Any] | None, longest: int) -> None:
    arch = model("llama", rope_scaling=scaling)
    assert arch.longest == longest
    (quiet,), (said,) = (length_notes(arch, Workload(phase="prefill", sequence=longest + more)) for more in (0, 1))
    assert not quiet and f"{longest} positions of the config" in str(said)


@pytest.mark.parametrize("backend", ["cudnn", "flash", "math"])
@pytest.mark.parametrize("model_type", ["gpt_oss", "bloom", "gptj", "deepseek_v4", "mimo_v2_flash"])
def test_attention_that_is_written_out_takes_no_kernel_of_sdpa(model_type: str, backend: str) -> None:
    with pytest.raises(InvalidInput, match="only auto is allowed") as error:
        build(model(model_type), Workload(phase="prefill", sequence=64, attention_backend=backend))
    assert error.value.field == "workload.attention_backend"


def test_compressed_keys_are_attended_to_beside_the_window() -> None:
    """DeepSeek V4: 128 keys of the window and one for each 4 or 128 tokens before, of those by an indexer 512 at most."""
    arch = model("deepseek_v4", num_hidden_layers=4)
    table = build(arch, Workload(phase="decode", context=65536, stack="vllm"))
    names = np.array([table.labels[label].name for label in table.label])
    assert set(table.seq_kv[names == "attention"]) == {128 + 512, 128 + 65536 // 128}
    assert set(table.n[names == "indexer_scores"]) == {65536 // 4}
