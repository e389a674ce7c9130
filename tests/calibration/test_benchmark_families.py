"""What every benchmark family promises the suite."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")

from tilewise.calibration.benchmarks import device
from tilewise.calibration.benchmarks.attention import Shape
from tilewise.calibration.benchmarks.grouped_gemm import Shape as Grouped
from tilewise.calibration.driver import NoDriver
from tilewise.calibration.protocol import Level, Target, Unmeasurable
from tilewise.calibration.target import CPU
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.table import OPS
from tilewise.hwdb.times import State

TRAFFIC = ("memory", "pointwise", "norms", "loss", "routing", "optimizer", "compiled")
PREPARED = (*TRAFFIC, "attention", "grouped_gemm", "batched_gemm", "special")
MEASURED = ("launch", "transfer")
FULL = replace(CPU, vendor="nvidia", sms=132, l2_bytes=50e6, memory_bytes=80e9, bandwidth_bytes_per_s=3.35e12)


def module(family: str):
    return importlib.import_module(f"tilewise.calibration.benchmarks.{family}")


def pool(size: int = 2**25) -> device.Pool:
    return device.Pool(torch.device("cpu"), size)


@pytest.mark.parametrize("family", [*PREPARED, *MEASURED])
@pytest.mark.parametrize(("target", "level"), [(CPU, Level.TINY), (FULL, Level.FULL)], ids=["tiny", "full"])
def test_the_plan_of_a_family_holds_every_point_once_and_is_always_the_same(
    family: str, target: Target, level: Level
) -> None:
    bench = module(family)
    cases = bench.cases(target, level)
    assert cases
    assert all(tuple(case.key) == bench.COLUMNS and case.family == bench.NAME == family for case in cases)
    assert len({case.identity for case in cases}) == len(cases)
    assert [case.identity for case in cases] == [case.identity for case in bench.cases(target, level)]
    assert all(case.estimate_s < 20e-3 for case in cases)


@pytest.mark.parametrize("family", [*PREPARED, "launch"])
def test_the_first_half_of_a_plan_holds_half_of_every_kind_of_point(family: str) -> None:
    bench = module(family)
    columns = ("op", "variant", "precision") if family in TRAFFIC else bench.COLUMNS[:1]
    cases = [case for case in bench.cases(FULL, Level.FULL) if case.state is State.BURST]
    whole, half = (
        Counter(tuple(case.key[column] for column in columns) for case in some)
        for some in (cases, cases[: len(cases) // 2])
    )
    for kind, count in whole.items():
        assert abs(half[kind] - count / 2) <= max(1.5, 0.2 * count), kind


@pytest.mark.parametrize("family", TRAFFIC)
def test_memory_bound_points_carry_names_that_the_operator_table_knows(family: str) -> None:
    for case in module(family).cases(FULL, Level.FULL):
        assert case.key["op"] in OPS
        assert case.bytes == pytest.approx(int(case.key["bytes_read"]) + int(case.key["bytes_written"]), abs=2)


@pytest.mark.parametrize("family", PREPARED)
def test_every_tiny_point_runs_on_the_cpu_or_is_refused_for_a_reason(family: str) -> None:
    bench, memory, refused = module(family), pool(), 0
    cases = bench.cases(CPU, Level.TINY)
    for case in cases:
        memory.rewind()
        try:
            calls = bench.prepare(case, memory)
            for call in calls[:2]:
                call()
        except (Unmeasurable, NotImplementedError, RuntimeError) as reason:
            assert str(reason)
            refused += 1
        else:
            assert 1 <= len(calls) <= case.sets
    assert refused <= len(cases) / 8


@pytest.mark.parametrize("family", MEASURED)
def test_families_with_a_clock_of_their_own_return_a_time(family: str) -> None:
    bench, cpu = module(family), device.Device("cpu", NoDriver(), 2**25)
    for case in bench.cases(CPU, Level.TINY):
        cpu.pool.rewind()
        row = bench.measure(case, cpu)
        assert float(row["time_s"]) > 0
        assert set(row) <= {"time_s", "spread"}


def test_kernels_never_write_to_the_random_operands_that_other_points_share() -> None:
    for family in PREPARED:
        memory = pool()
        before: dict[object, object] = {}
        for case in module(family).cases(CPU, Level.TINY):
            memory.rewind()
            try:
                calls = module(family).prepare(case, memory)
                for dtype, buffer in memory._buffers.items():
                    if dtype not in before and dtype != torch.uint8:
                        before[dtype] = buffer.clone()
                calls[0]()
            except (Unmeasurable, NotImplementedError, RuntimeError):
                continue
        for dtype, buffer in before.items():
            assert torch.equal(buffer, memory._buffers[dtype]), (family, dtype)


@pytest.mark.parametrize(("skew", "m"), [(0, 640), (80, 641), (120, 7)])
def test_rows_of_the_experts_sum_to_the_rows_of_the_batch(skew: int, m: int) -> None:
    sizes = Grouped("fwd", 64, m, 128, 128, skew).sizes
    assert sum(sizes) == m
    assert len(sizes) == 64
    assert min(sizes) >= 0


def test_a_causal_mask_counts_half_the_pairs_and_a_window_no_more_than_that() -> None:
    full = Shape(batch=1, heads=1, kv_heads=1, head_dim=64, head_dim_v=64, seq_q=1024, seq_kv=1024)
    causal, windowed = replace(full, causal=1), replace(full, causal=1, window=128)
    assert causal.flops == full.flops / 2
    assert windowed.flops < causal.flops
    assert replace(windowed, window=1024).flops == causal.flops


def test_the_documented_command_measures_collectives_between_two_processes(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [
        "-m",
        "tilewise",
        "calibrate",
        "run",
        "--sku",
        "h100-sxm5-80gb",
        "--device",
        "cpu",
        "--only",
        "collectives",
    ]
    done = subprocess.run(
        [*torchrun, *command, "-o", str(tmp_path)], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = Calibration.open(done.stdout.strip()).measurements("collectives")
    assert Counter(found["op"].tolist()) == dict.fromkeys(module("collectives").OPS, 3)
    assert set(found["ranks"].tolist()) == {2} and min(found["time_us"]) > 0
