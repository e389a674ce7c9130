"""Mixtures of experts with few tokens: user-cases G47-G49."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewise.hwdb.table import Kind
from tilewise.server.architecture import Architecture
from tilewise.server.architecture.model import Experts
from tilewise.server.operators import build
from tilewise.server.operators.experts import chance_skew, distinct_experts, padded_share, padding_notes
from tilewise.server.operators.routing import sort_kernels
from tilewise.server.workload import Workload

Config = Callable[[str], Architecture]


@pytest.mark.parametrize(("tokens", "hit"), [(1, 8), (2, 15.75), (4, 30.5)])
def test_few_tokens_read_almost_disjoint_experts(tokens: int, hit: float) -> None:
    assert distinct_experts(256, 8, tokens) == pytest.approx(hit, abs=0.05)  # G49


def test_padding_every_expert_to_a_tile_wastes_most_of_the_work(config: Config) -> None:
    model = config("qwen3.5/Qwen3.5-35B-A3B")  # G47: 256 experts, 8 a token, 256 tokens
    experts = model.stacks[-1].blocks[0].feed_forward
    assert isinstance(experts, Experts)
    assert padded_share(256, experts, 128) == pytest.approx(0.9375, abs=0.0005)
    assert any("8.00" in note and "93.7" in note for note in padding_notes(model, 256)[0])


def test_two_tokens_cost_twice_the_expert_bytes_of_one(config: Config) -> None:
    model = config("qwen3-moe/Qwen3-30B-A3B")
    read = []
    for batch in (1, 2):
        table = build(model, Workload(phase="decode", batch=batch, context=1024, mode="graph"))
        rows = table.kind == Kind.GROUPED_GEMM
        read.append((table.count * table.bytes_read)[rows].sum())
    assert read[1] / read[0] == pytest.approx(distinct_experts(128, 8, 2) / 8, rel=0.01)


def test_decode_at_batch_one_lists_its_launches_apart_from_its_bytes(config: Config) -> None:
    table = build(
        config("qwen3-moe/Qwen3-30B-A3B"), Workload(phase="decode", batch=1, context=1024, mode="eager")
    )  # G48
    sorts = np.array([label.name == "expert_sort" for label in table.labels])[table.label]
    assert table.kernels[sorts].min() >= 1 and table.count[sorts].sum() == 48


def test_every_expert_has_a_gradient_whether_hit_or_not(config: Config) -> None:
    table = build(config("mixtral/Mixtral-8x7B-v0.1"), Workload(phase="train", batch=1, sequence=2))
    gradients = (table.kind == Kind.GROUPED_GEMM) & (table.layout == 2)
    assert set(table.groups[gradients]) == {8.0}


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_an_expert_without_a_token_is_not_read(config: Config, mode: str) -> None:
    work = Workload(phase="decode", batch=16, context=1024, mode=mode)
    table = build(config("qwen3-moe/Qwen3-30B-A3B"), work)
    assert set(table.groups[table.kind == Kind.GROUPED_GEMM]) == {distinct_experts(128, 8, 16)}


def test_experts_that_are_chosen_by_chance_are_uneven_and_fill_more_tiles(config: Config) -> None:
    assert chance_skew(256) == pytest.approx(1 / 16) and chance_skew(2) == 0
    drawn = np.random.default_rng(0).multinomial(256 * 128, np.full(128, 1 / 128))
    skewed = (np.arange(128) + 1.0) ** -chance_skew(256)
    assert np.log(skewed).std() == pytest.approx(np.log(drawn).std(), rel=0.2)
    table = build(config("qwen3-moe/Qwen3-30B-A3B"), Workload(phase="prefill", batch=1, sequence=4096, mode="eager"))
    assert set(table.skew[table.kind == Kind.GROUPED_GEMM]) == {chance_skew(256)}


def test_a_small_sort_copies_its_keys_twice_and_makes_its_indices_of_a_range() -> None:
    assert sort_kernels(4096) == 5  # two copies, a range, its copy, the sort in place
    assert sort_kernels(4097) > 20  # a radix sort of 64-bit keys
