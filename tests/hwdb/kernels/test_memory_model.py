"""A made-up GPU whose kernels obey the law exactly: the fit must find it again."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.memory import choice as memory_kernels
from tilewise.hwdb.kernels.memory import fitted as memory
from tilewise.hwdb.kernels.memory import physics as memory_law
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import (
    OPS,
    VARIANTS,
    Kind,
    Label,
    OperatorTable,
    Residency,
    kernel_codes,
    table_from_columns,
)
from tilewise.hwdb.times import State, Times, Trust, Wall

SKU = Database.packaged().sku("h100-sxm5-80gb")
MADE_UP = {  # op/variant: reads and writes of 2 bytes, floor, chip and memory bytes/s, seconds a row and a column
    "add/residual": (2, 1, 1.2e-6, 8e12, 3.0e12, 0.0, 0.0),
    "mul/plain": (2, 1, 1.1e-6, 7e12, 3.1e12, 0.0, 0.0),
    "cast/bf16_fp32": (1, 2, 1.9e-6, 2.5e12, 2.1e12, 0.0, 0.0),
    "softmax/rows": (1, 1, 1.5e-6, 5e12, 2.9e12, 1e-10, 4e-10),
    "rmsnorm/fused": (1, 1, 1.8e-6, 6e12, 2.8e12, 2e-10, 5e-10),
}


@cache
def measurements() -> dict[str, Any]:
    """Points of the made-up GPU, as a calibration's columns."""
    draw = np.random.default_rng(1)
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for name, (reads, writes, *_) in MADE_UP.items():
        for _ in range(40):
            m, n = int(2 ** draw.uniform(2, 15)), 64 * int(2 ** draw.uniform(2, 8))
            values = (*name.split("/"), "bf16", m, n, 0, 0, 2 * reads * m * n, 2 * writes * m * n, "reused")
            values += (int(np.clip(1.6e8 / (2 * reads * m * n), 1, 24)),)
            for column, value in zip(COLUMNS, values, strict=True):
                rows[column].append(value)
    columns = {name: np.array(values) for name, values in rows.items()}
    return {"pointwise": columns | {"time_us": true_seconds(columns) * 1e6}}


COLUMNS = (
    "op", "variant", "precision", "rows", "cols", "inner", "count", "bytes_read", "bytes_written", "residency", "sets",
)  # fmt: skip


def true_seconds(columns: dict[str, Any]) -> np.ndarray:
    table = memory.table({"pointwise": columns})
    names = [f"{op}/{variant}" for op, variant in zip(columns["op"], columns["variant"], strict=True)]
    constants = np.array([[*MADE_UP[name][2:], 0.0] for name in names]).T
    kinds = np.array([memory_kernels.class_of(memory_kernels.kernel_of("pointwise", *n.split("/"))) for n in names])
    work = memory_law.work(table, memory_kernels.traits()[kinds], SKU, columns["sets"].astype(float))
    seconds: np.ndarray = memory_law.walls(constants, work).time_s
    return seconds


@cache
def model() -> dict[str, Any]:
    return memory.fit(measurements(), SKU)


def one(kernel: str, rows: float, cols: float, read: float, written: float, **more: Any) -> OperatorTable:
    op, variant = kernel_codes(kernel)
    columns = {
        "kind": int(Kind.MEMORY), "op": op, "variant": variant, "precision": int(Precision.BF16), "rows": rows,
        "cols": cols, "bytes_read": read, "bytes_written": written,
    } | more  # fmt: skip
    return table_from_columns(
        [Label(name="x", layer="", part="")], 1, 1, {k: np.array([v]) for k, v in columns.items()}
    )


def predict(table: OperatorTable) -> Times:
    return memory.predict(table, model(), SKU, State.BURST)


def test_a_made_up_law_is_found_again() -> None:
    times = memory.predict(memory.table(measurements()), model(), SKU, State.BURST)
    truth = measurements()["pointwise"]["time_us"] * 1e-6
    rotated = measurements()["pointwise"]["bytes_read"] * measurements()["pointwise"]["sets"] > 6e7
    error = np.abs(times.time_s / truth - 1)[rotated]  # the others were half in L2, which a table cannot say
    assert np.mean(error) < 0.03 and np.quantile(error, 0.9) < 0.08


def test_most_points_lie_within_their_interval() -> None:
    times = memory.predict(memory.table(measurements()), model(), SKU, State.BURST)
    truth = measurements()["pointwise"]["time_us"] * 1e-6
    assert np.mean((times.low_s <= truth) & (truth <= times.high_s)) > 0.85


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["add", "mul", "cast", "softmax", "rmsnorm"]),
    st.integers(6, 14),
    st.sampled_from([512, 2048, 4096]),
)
def test_twice_the_rows_are_never_faster_beyond_the_noise(kernel: str, log_rows: int, cols: int) -> None:
    rows = 2**log_rows
    small = predict(one(kernel, rows, cols, 4.0 * rows * cols, 2.0 * rows * cols))
    large = predict(one(kernel, 2 * rows, cols, 8.0 * rows * cols, 4.0 * rows * cols))
    assert large.time_s[0] > 0.97 * small.time_s[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(8, 14))
def test_what_lies_in_l2_is_never_slower(log_rows: int) -> None:
    rows = 2**log_rows
    shape = ("add", rows, 1024, 4.0 * rows * 1024, 2.0 * rows * 1024)
    warm = predict(one(*shape, residency=int(Residency.WARM)))
    assert warm.time_s[0] <= 1.03 * predict(one(*shape)).time_s[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(8, 14), st.floats(0, 1))
def test_what_the_kernel_before_left_comes_from_l2_as_far_as_it_fits(log_rows: int, share: float) -> None:
    rows = 2**log_rows
    read, written = 4.0 * rows * 1024, 2.0 * rows * 1024
    table = one("add", rows, 1024, read, written, recent_bytes=share * read)
    traits = memory_kernels.traits()[np.array([memory_kernels.class_of("add")])]
    missed = memory_law.work(table, traits, SKU).missed[0]
    without = memory_law.work(one("add", rows, 1024, read, written), traits, SKU).missed[0]
    fits, overflows = read + written < 0.38 * SKU.l2_bytes, read + written > 1.1 * SKU.l2_bytes
    assert missed <= without
    assert not fits or missed == pytest.approx((1 - share) * read)
    assert not overflows or missed == without


def test_large_streams_are_bound_by_memory_and_small_ones_by_launch() -> None:
    assert predict(one("add", 16384, 4096, 2.7e8, 1.34e8)).wall[0] == Wall.MEMORY
    assert predict(one("add", 16, 512, 3.3e4, 1.6e4)).wall[0] == Wall.LAUNCH


def work_of(kernel: str, rows: float, cols: float, read: float, written: float) -> memory_law.Work:
    kinds = np.array([memory_kernels.class_of(kernel)])
    return memory_law.work(one(kernel, rows, cols, read, written), memory_kernels.traits()[kinds], SKU)


def test_a_selection_looks_at_whole_warps_of_columns_and_sorts_only_where_it_keeps_several() -> None:
    first, wider, several = (
        work_of("topk", 4096, cols, 4 * 4096 * cols, 12 * 4096 * kept) for cols, kept in ((33, 1), (64, 1), (64, 8))
    )
    assert first.units == wider.units == several.units == 2 * 4096
    assert first.path == wider.path == 0 and several.path == 1


@pytest.mark.parametrize(
    ("rows", "cols", "walk", "split"),
    [
        (16, 4096, 16, False),  # a warp adds so few rows by itself
        (512, 2048, 128, False),  # the four warps of a block share a column
        (4096, 4096, 16, True),  # there is room for 66 blocks to share a column, at 16 rows a thread
        (4096, 4097, 4096 / 16 / 5, True),  # odd columns one by one, in blocks of 16 warps
    ],
)
def test_a_sum_over_rows_is_shared_as_torch_shares_it(rows: int, cols: int, walk: float, split: bool) -> None:
    """By hand from setReduceConfig in Reduce.cuh; all operands in L2."""
    found = work_of("reduce_columns", rows, cols, 0, 0)
    assert found.walk == pytest.approx(walk, rel=0.02)
    assert (found.path == 1) == split


def test_a_kernel_that_was_not_measured_is_answered_by_its_stand_in_with_a_wider_interval_and_less_trust() -> None:
    own, other = (predict(one(kernel, 4096, 4096, 3.4e7, 6.7e7)) for kernel in ("cast", "quantize"))
    assert own.trust[0] == Trust.MEASURED and other.trust[0] == Trust.DATASHEET
    assert other.high_s[0] / other.low_s[0] > own.high_s[0] / own.low_s[0]


def test_a_kernel_without_a_stand_in_is_refused() -> None:
    times = predict(one("topk", 4096, 64, 1e6, 1e5))
    assert times.refused[0] and np.isnan(times.time_s[0]) and "NOT_MEASURED" in times.refusals[times.refusal[0]]


def test_every_rule_names_kernels_that_tables_know() -> None:
    rules = memory_kernels.rules()
    named = [*rules["same"].values(), *rules["stand_in"].keys(), *rules["stand_in"].values()]
    named += [name for members in rules["class"].values() for name in members]
    assert all(kernel_codes(name) for name in named)
    assert set(rules["traits"]) == set(rules["class"])


def test_codes_of_ops_and_variants_are_unique() -> None:
    assert len(set(OPS)) == len(OPS) and len(set(VARIANTS)) == len(VARIANTS)


@pytest.mark.parametrize("kernel", ["add.nonsense", "nonsense"])
def test_an_unknown_kernel_name_is_no_code(kernel: str) -> None:
    with pytest.raises(KeyError):
        kernel_codes(kernel)


def test_short_rows_of_a_compiled_norm_cost_by_their_bytes_where_long_ones_alone_were_measured() -> None:
    h100, h200 = (Database.packaged().gpu(name) for name in ("h100-sxm5-80gb", "h200-sxm-141gb"))
    for cols in (64, 128, 256):
        rows, size = 2**24 // cols, 2 * 2**24
        found = []
        for gpu in (h100, h200):
            op, variant = kernel_codes("rmsnorm.compiled")
            sizes = {
                "op": op,
                "variant": variant,
                "rows": rows,
                "cols": cols,
                "bytes_read": 2.0 * size,
                "bytes_written": 2.0 * size,
            }
            kind = {"kind": int(Kind.MEMORY), "precision": int(Precision.BF16)}
            columns = {name: np.array([value]) for name, value in (sizes | kind).items()}
            norm = table_from_columns([Label(name="norm", layer="", part="")], 1, 1, columns)
            found.append(float(gpu.predict(norm).time_s[0]))
        assert 0.5 < found[1] / found[0] < 2
