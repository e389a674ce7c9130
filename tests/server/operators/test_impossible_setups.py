"""Set-ups that no framework runs are refused with what is allowed."""

import json
from typing import Any

import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import Architecture, read
from tilewise.server.operators.sharding import check
from tilewise.server.workload import Workload


def llama(**sizes: int) -> Architecture:
    shape = {
        "hidden_size": 3072,
        "intermediate_size": 12288,
        "num_hidden_layers": 2,
        "head_dim": 128,
        "vocab_size": 49152,
    }
    return read(json.dumps({"model_type": "llama", **shape, **sizes}))


def workload(**given: Any) -> Workload:
    return Workload(phase="prefill", batch=1, sequence=512, **given)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "allowed"),
    [(24, 8, 6, "1, 2, 4, 8, 24"), (12, 4, 6, "1, 2, 4, 12"), (96, 8, 6, "1, 2, 4, 8")],
)
def test_kv_heads_that_ranks_cannot_share_out_are_refused(heads: int, kv_heads: int, ranks: int, allowed: str) -> None:
    arch = llama(num_attention_heads=heads, num_key_value_heads=kv_heads)
    with pytest.raises(InvalidInput, match=f"{heads} query and {kv_heads} kv heads allow {allowed}") as caught:
        check(arch, workload(tensor_parallel=ranks))
    assert caught.value.reason == "TENSOR_PARALLEL_INDIVISIBLE"


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 24])
def test_ranks_that_divide_the_kv_heads_or_repeat_them_are_answered(ranks: int) -> None:
    check(llama(num_attention_heads=24, num_key_value_heads=8), workload(tensor_parallel=ranks))


def test_a_scan_keeps_its_heads_whole() -> None:
    sizes = {"hidden_size": 1024, "expand": 2, "num_heads": 24, "head_dim": 96, "n_groups": 1, "num_hidden_layers": 2}
    arch = read(json.dumps({"model_type": "mamba2", **sizes, "hidden_size": 1152}))
    check(arch, workload(tensor_parallel=8))
    with pytest.raises(InvalidInput, match="heads of the scan 24"):
        check(arch, workload(tensor_parallel=16))
