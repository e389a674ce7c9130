"""Tensor parallelism and quantisation blocks: user-cases G29-G32."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.table import Kind
from tilewise.server.architecture import Architecture, count
from tilewise.server.operators import build
from tilewise.server.operators.parameters import rank_parameters
from tilewise.server.operators.sharding import notes, whole_splits
from tilewise.server.workload import Workload

Config = Callable[[str], Architecture]
Llama = Callable[..., Architecture]


def test_heads_that_do_not_divide_are_refused_with_the_sizes_that_do(config: Config) -> None:
    with pytest.raises(InvalidInput) as error:  # G29
        build(config("qwen2/Qwen2-7B-Instruct"), Workload(phase="decode", context=1024, tensor_parallel=8))
    assert "28 allows 1, 2, 4, 7, 14, 28" in error.value.message and "pipeline parallelism" in error.value.message
    assert "\n" not in error.value.message


def test_more_ranks_than_kv_heads_replicate_them_and_say_so(config: Config) -> None:
    model = config("qwen2/Qwen2-7B-Instruct")
    assert notes(model, 4) == [{}]
    assert any("each kv head is held by" in note for note in notes(model, 14)[0])


@pytest.mark.parametrize("name", ["minimax/MiniMax-M2.5", "qwen3-moe/Qwen3-235B-A22B"])
def test_fp8_blocks_of_128_must_fill_every_shard(config: Config, name: str) -> None:
    model = config(name)  # G30: expert width 1536
    build(model, decode("fp8_block", 4))
    with pytest.raises(InvalidInput, match=r"192 of 1536 .* tensor_parallel 1, 2, 4 leaves whole blocks"):
        build(model, decode("fp8_block", 8))


def test_narrow_experts_fail_by_block_and_pass_in_bf16(config: Config) -> None:
    model = config("qwen3-moe/Qwen3-30B-A3B")  # G31: 768 / 4 = 192
    for precision in ("bf16", "mxfp8", "nvfp4"):
        build(model, decode(precision, 4))
    with pytest.raises(InvalidInput, match="192 of 768"):
        build(model, decode("fp8_block", 4))


def decode(precision: str, ranks: int) -> Workload:
    return Workload(phase="decode", context=64, tensor_parallel=ranks, precision=precision)


def test_a_width_is_linted_without_a_model() -> None:
    assert whole_splits(33792, 128) == (1, 2, 4, 8)  # G32: 2112 at 16


def test_a_rank_reduces_twice_a_layer_each_way(llama: Llama) -> None:
    table = build(llama(), Workload(phase="train", sequence=1024, tensor_parallel=4))
    reduces = table.kind == Kind.COLLECTIVE
    layers = np.array([label.layer.startswith("decoder.0") for label in table.labels])[table.label]
    assert table.count[reduces & layers].sum() == 32 * 4
    assert set(table.message_bytes[reduces & layers]) == {2.0 * 1024 * 4096}


@pytest.mark.parametrize(("phase", "each_layer"), [("prefill", 2), ("train", 4)])
def test_ranks_that_share_experts_reduce_what_they_combined(config: Config, phase: str, each_layer: int) -> None:
    model = config("qwen3-moe/Qwen3-30B-A3B")  # no shared expert: attention and mixture reduce once each way
    table = build(model, Workload(phase=phase, sequence=1024, tensor_parallel=4))
    reduces = table.kind == Kind.COLLECTIVE
    layers = np.array([label.layer.startswith("decoder.0") for label in table.labels])[table.label]
    assert table.count[reduces & layers].sum() == 48 * each_layer
    assert set(table.message_bytes[reduces & layers]) == {2.0 * 1024 * 2048}


def test_norms_of_single_heads_are_of_a_ranks_own_heads(config: Config) -> None:
    model = config("qwen3/Qwen3-0.6B")  # 16 query heads, 8 key heads
    table = build(model, Workload(phase="prefill", sequence=64, tensor_parallel=4, stack="transformers"))
    rows = {label.name: table.rows[table.label == at].tolist() for at, label in enumerate(table.labels)}
    assert set(rows["q_norm"]) == {64.0 * 4} and set(rows["k_norm"]) == {64.0 * 2}


def test_one_rank_has_no_collectives(llama: Llama) -> None:
    assert not (build(llama(), Workload(phase="train", sequence=1024)).kind == Kind.COLLECTIVE).any()


def test_ranks_share_the_work_and_the_weights(llama: Llama) -> None:
    whole, part = (build(llama(), Workload(phase="train", sequence=1024, tensor_parallel=n)) for n in (1, 8))
    gemms = [(t.count * t.flops)[t.kind == Kind.GEMM].sum() for t in (whole, part)]
    assert gemms[0] / gemms[1] == pytest.approx(8, rel=1e-6)
    assert rank_parameters(llama(), 8) == pytest.approx(rank_parameters(llama()) / 8, rel=1e-3)


def test_one_rank_holds_every_parameter_of_every_config(config: Config) -> None:
    for name in ("llama/Meta-Llama-3.1-8B", "mixtral/Mixtral-8x7B-v0.1", "deepseek/DeepSeek-V3", "qwen3/Qwen3-0.6B"):
        assert rank_parameters(config(name)) == count(config(name)).total


@pytest.mark.parametrize(
    ("name", "precision", "ranks", "phase", "says"),
    [
        ("qwen3-moe/Qwen3-235B-A22B", "fp8_block", 8, "decode", "192 of 1536 on each rank is no multiple of the 128"),
        ("qwen3-moe/Qwen3-30B-A3B", "fp8_block", 4, "decode", "192 of 768 on each rank"),
        ("qwen3-moe/Qwen3-30B-A3B", "fp8_block", 8, "decode", "tensor_parallel 1, 2 leaves whole blocks"),
    ],
)
def test_a_shard_that_cuts_a_scale_block_is_refused_with_the_sizes_that_do_not(
    config: Config, name: str, precision: str, ranks: int, phase: str, says: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        build(config(name), Workload(phase=phase, context=64, tensor_parallel=ranks, precision=precision))
    assert says in error.value.message and "\n" not in error.value.message
    assert error.value.reason == "QUANTISATION_BLOCK"


@pytest.mark.parametrize("precision", ["fp8", "fp8_row", "int8", "nvfp4", "mxfp8"])
def test_formats_with_smaller_blocks_or_none_take_the_same_shard(config: Config, precision: str) -> None:
    build(
        config("qwen3-moe/Qwen3-30B-A3B"), Workload(phase="decode", context=64, tensor_parallel=4, precision=precision)
    )


def test_a_width_off_the_block_is_refused_without_parallelism_too(llama: Llama) -> None:
    ragged = llama(intermediate_size=11008 + 8)
    build(ragged, Workload(phase="prefill", sequence=64, precision="fp8"))
    with pytest.raises(
        InvalidInput, match="11016 on each rank is no multiple of the 32 values that share a scale in mxfp8"
    ):
        build(ragged, Workload(phase="prefill", sequence=64, precision="mxfp8"))
