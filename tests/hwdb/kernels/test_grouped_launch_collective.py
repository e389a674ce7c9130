"""Grouped GEMM, launch and collectives on made-up GPUs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb import launch as costs
from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels import launch
from tilewise.hwdb.kernels.collective import fitted as collective
from tilewise.hwdb.kernels.grouped_gemm import fitted as grouped_gemm
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import OP_CODES, Kind, Label, Layout, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Times, Trust

SKU = Database.packaged().sku("h100-sxm5-80gb")
CONSTANTS = np.array([9e-6, 4e-7, 0.8, 0.9, 2.0])


def rows(**columns: Any) -> OperatorTable:
    length = len(next(iter(columns.values())))
    return table_from_columns([Label(name="x", layer="", part="")], 1, length, columns)


@cache
def grouped_points() -> dict[str, Any]:
    draw = np.random.default_rng(2)
    count = 240
    columns: dict[str, Any] = {
        "kind": draw.choice(["fwd", "dgrad", "wgrad"], count),
        "groups": draw.choice([4, 8, 16, 32, 64], count),
        "n": draw.choice([1024, 2048, 4096, 8192], count),
        "k": draw.choice([1024, 2048, 4096], count),
        "skew": draw.choice([0, 0, 50, 100], count),
    }
    columns["m"] = columns["groups"] * draw.choice([1, 8, 32, 128, 192, 512, 2048], count)
    columns["hit"] = columns["groups"]
    table = grouped_gemm.table({"grouped_gemm": columns})
    return columns | {"time_us": grouped_gemm.work(table, SKU).seconds(CONSTANTS, SKU.sm_count) * 1e6}


@cache
def grouped_model() -> dict[str, Any]:
    return grouped_gemm.fit(grouped_points(), SKU)


def grouped(m: float, groups: float, n: int = 4096, k: int = 2048, skew: float = 0.0) -> Times:
    table = rows(
        kind=np.array([int(Kind.GROUPED_GEMM)]), layout=np.array([int(Layout.FORWARD)]), m=np.array([m]),
        precision=np.array([int(Precision.BF16)]), n=np.array([n]), k=np.array([k]), groups=np.array([groups]),
        skew=np.array([skew]), flops=np.array([2.0 * m * n * k]), bytes_read=np.array([2.0 * k * (m + groups * n)]),
        bytes_written=np.array([2.0 * m * n]),
    )  # fmt: skip
    return grouped_gemm.predict(table, grouped_model(), SKU, State.BURST)


def test_a_made_up_law_of_grouped_gemms_is_found_again() -> None:
    table = grouped_gemm.table({"grouped_gemm": grouped_points()})
    times = grouped_gemm.predict(table, grouped_model(), SKU, State.BURST)
    error = np.abs(times.time_s * 1e6 / grouped_points()["time_us"] - 1)
    assert np.mean(error) < 0.02 and np.max(error) < 0.15


def test_few_rows_an_expert_cost_what_a_whole_tile_costs() -> None:
    one, full = grouped(32 * 16, 32), grouped(32 * 128, 32)
    assert one.tiles[0] == full.tiles[0]
    assert full.time_s[0] / one.time_s[0] < 1.25


def test_unlike_groups_need_more_tiles() -> None:
    assert grouped(32 * 128, 32, skew=1.0).tiles[0] > grouped(32 * 128, 32).tiles[0]


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 11), st.sampled_from([8, 16, 32]))
def test_twice_the_rows_of_every_expert_are_never_faster_beyond_the_noise(log_rows: int, groups: int) -> None:
    small, large = (grouped(groups * 2.0**power, groups) for power in (log_rows, log_rows + 1))
    assert large.time_s[0] > 0.97 * small.time_s[0]


def launch_points() -> dict[str, Any]:
    made_up = [
        ("issue", "add", 1000, 8.0), ("issue", "silu", 1000, 10.0), ("issue", "linear", 1000, 20.0),
        ("issue", "view", 1000, 4.0), ("forward", "silu", 300, 12.0), ("backward", "silu", 300, 16.0),
        ("queued", "add", 300, 2.2), ("queued", "silu", 300, 2.6), ("graph", "add", 1000, 1.0),
        ("graph", "silu", 1000, 1.4), ("graph_launch", "add_", 1, 5.0), ("graph_launch", "add_", 1000, 25.0),
    ]  # fmt: skip
    return {name: np.array(values) for name, values in zip(("mode", "operation", "calls", "time_us"), zip(*made_up))}  # noqa: B905


def test_an_eager_kernel_costs_its_call_the_silent_ones_beside_it_and_the_framework_around_them() -> None:
    eager = costs.launch("eager", launch.fit(launch_points()))
    low, value, high = eager.issue_s
    assert value == pytest.approx(1.65 * (14e-6 + 2 * 4e-6), rel=1e-2) and eager.trust == Trust.MEASURED
    assert low < value <= high and eager.gap_s[1] == pytest.approx(1.2e-6)


def test_a_graph_costs_less_to_issue_than_compiled_code_and_that_less_than_eager() -> None:
    model = launch.fit(launch_points())
    eager, compiled, graph = (costs.launch(mode, model).issue_s[1] for mode in ("eager", "compiled", "graph"))
    assert graph < compiled < eager


def collective_points() -> dict[str, Any]:
    sizes = [2**power for power in range(10, 31)]
    columns = {
        "op": np.repeat(["all_reduce", "all_gather"], len(sizes)),
        "ranks": np.full(2 * len(sizes), 4),
        "bytes": np.tile(sizes, 2),
    }
    factor = np.where(columns["op"] == "all_reduce", 1.5, 0.75)
    return columns | {"time_us": np.hypot(3e-5, factor * columns["bytes"] / 3e11) * 1e6}


def reduced(size: float, ranks: int, op: str = "all_reduce") -> Times:
    table = rows(
        kind=np.array([int(Kind.COLLECTIVE)]), op=np.array([OP_CODES[op]]), ranks=np.array([ranks]),
        message_bytes=np.array([size]),
    )  # fmt: skip
    return collective.predict(table, collective.fit(collective_points()), SKU, State.BURST)


def test_latency_and_bus_bandwidth_are_found_again() -> None:
    model = collective.fit(collective_points())
    assert model["latency_s"][0] == pytest.approx(3e-5, rel=0.01)
    assert model["bus_bytes_per_s"][:2] == pytest.approx([3e11, 3e11], rel=0.01)


def test_other_numbers_of_ranks_widen_the_interval() -> None:
    near, far = reduced(1e9, 4), reduced(1e9, 8)
    assert far.high_s[0] / far.low_s[0] > 1.5 * near.high_s[0] / near.low_s[0]
    assert far.distance[0] == 1 and near.distance[0] == 0


def test_more_ranks_than_a_board_has_are_refused() -> None:
    assert reduced(1e9, 64).refused[0] and not reduced(1e9, 8).refused[0]


def test_an_operation_never_measured_is_refused() -> None:
    assert reduced(1e9, 4, "all_to_all").refused[0]


def test_a_single_rank_waits_for_nobody() -> None:
    assert reduced(1e9, 1).time_s[0] == 0


@settings(max_examples=40, deadline=None)
@given(st.floats(1e3, 1e9), st.integers(2, 8))
def test_more_bytes_never_take_less_time(size: float, ranks: int) -> None:
    assert reduced(2 * size, ranks).time_s[0] >= reduced(size, ranks).time_s[0]
