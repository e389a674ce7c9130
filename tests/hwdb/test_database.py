"""Database and Gpu: what is there, its version, which model answers for which row, and what a launch costs."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, NotAvailable, NotFound
from tilewise.hwdb.kernels import roofline
from tilewise.hwdb.launch import MODES
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Times, Trust, merge

DATABASE = Database.packaged()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A database folder of our own, without calibrations."""
    for path in DATABASE.folder.glob("*.toml"):
        shutil.copy(path, tmp_path)
    shutil.copytree(DATABASE.folder / "skus", tmp_path / "skus")
    return tmp_path


def mixed() -> OperatorTable:
    columns: dict[str, Any] = {
        "kind": np.array([Kind.GEMM, Kind.MEMORY, Kind.GEMM, Kind.COLLECTIVE]),
        "precision": np.array([Precision.BF16, Precision.BF16, Precision.NVFP4, Precision.BF16]),
        "m": np.array([4096.0, 0, 4096, 0]),
        "n": np.array([4096, 0, 4096, 0]),
        "k": np.array([4096, 0, 4096, 0]),
        "flops": np.array([1.4e11, 0, 1.4e11, 0]),
        "bytes_read": np.array([1e8, 1e9, 1e8, 0]),
        "ranks": np.array([0, 0, 0, 8]),
        "message_bytes": np.array([0, 0, 0, 1e8]),
    }
    return table_from_columns([Label(name="a", layer="b", part="c")], 1, 4, columns)


def assert_same(one: Times, other: Times) -> None:
    for name in Times.__struct_fields__:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_the_version_is_the_same_for_the_same_files_and_another_after_a_change(copy: Path) -> None:
    first = Database(copy).version
    assert first == Database(copy).version
    path = copy / "skus" / "mi300x.toml"
    path.write_text(path.read_text().replace("tdp_w = [750", "tdp_w = [760"))
    assert Database(copy).version != first


def test_one_database_serves_a_process() -> None:
    assert Database.packaged() is DATABASE


def test_a_sku_file_is_read_once() -> None:
    assert DATABASE.sku("mi300x") is DATABASE.sku("mi300x")


def test_a_broken_file_of_another_sku_does_not_stop_an_exact_name(copy: Path) -> None:
    (copy / "skus" / "mi355x.toml").write_text("name = ")
    assert Database(copy).gpu("h100-sxm5-80gb").sku.sm_count == 132
    with pytest.raises(InvalidInput, match=r"mi355x\.toml"):
        Database(copy).sku("mi355x")


def test_a_sku_without_calibration_is_answered_by_the_roofline(copy: Path) -> None:
    database = Database(copy)
    assert database.calibrations("mi300x") == ()
    assert database.active("mi300x") is None
    gpu = database.gpu("mi300x")
    assert gpu.calibration is None
    assert_same(gpu.predict(mixed()), roofline.predict(mixed(), {}, gpu.sku, State.BURST))


def test_a_calibration_that_is_not_there_is_an_error(copy: Path) -> None:
    with pytest.raises(NotFound) as caught:
        Database(copy).gpu("mi300x", "2026-11-27-1a2b3c4d")
    assert caught.value.reason == "CALIBRATION_NOT_FOUND"


def test_a_path_is_no_sku_name() -> None:
    with pytest.raises(NotFound):
        DATABASE.sku("../skus/mi300x")


@dataclass(frozen=True)
class OnlyLaunch:
    """A calibration that measured launches and fitted nothing else."""

    id: str = "2026-11-28-00000000"
    sha256: str = "0" * 64

    def model(self, family: str) -> Mapping[str, Any]:
        return {"eager": {"issue_s": [3e-6, 4e-6, 5e-6], "gap_s": [1e-6, 1e-6, 1e-6]}} if family == "launch" else {}


def test_launch_costs_of_a_calibration_replace_the_published_ones() -> None:
    plain = DATABASE.gpu("h200-nvl-141gb")
    measured = type(plain)(plain.sku, OnlyLaunch()).launch("eager")
    assert measured.issue_s[1:] == (4e-6, 5e-6) and measured.trust is Trust.MEASURED
    assert plain.launch("eager").trust is Trust.DATASHEET


def test_a_graph_costs_the_cpu_less_than_compiled_code_and_that_less_than_eager() -> None:
    eager, compiled, graph = (DATABASE.gpu("mi300x").launch(mode) for mode in MODES)
    assert eager.issue_s[1] > compiled.issue_s[1] > graph.issue_s[1]
    for cost in (eager, compiled, graph):
        for low, value, high in (cost.issue_s, cost.gap_s, cost.call_s, cost.pause_s, cost.plan_s):
            assert 0 <= low <= value <= high
        assert cost.source


def test_another_host_may_be_as_quick_as_the_quickest_published_and_ones_own_is_known_better() -> None:
    gpu = DATABASE.gpu("h100-sxm5-80gb")
    low, value, high = gpu.launch("eager").issue_s
    assert low < value / 5
    own = gpu.launch("eager", issue_s=value / 2)
    assert own.issue_s[1] == pytest.approx(value / 2) and own.issue_s[2] / own.issue_s[0] < (high / low) / 2
    assert own.plan_s[1] == pytest.approx(gpu.launch("eager").plan_s[1] / 2)
    assert own.gap_s == gpu.launch("eager").gap_s


def test_an_unknown_mode_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(InvalidInput, match="eager, compiled, graph"):
        DATABASE.gpu("mi300x").launch("lazy")


def test_a_peak_that_a_gpu_lacks_is_not_available() -> None:
    with pytest.raises(NotAvailable, match=r"a100-sxm-80gb has no fp8; it has fp64, fp32, tf32, bf16, fp16, int8"):
        DATABASE.gpu("a100-sxm-80gb").peak(Precision.FP8)


def test_merged_parts_equal_the_whole() -> None:
    rows, sku = mixed(), DATABASE.sku("h100-sxm5-80gb")
    whole = roofline.predict(rows, {}, sku, State.BURST)
    parts = []
    for kind in (Kind.COLLECTIVE, Kind.GEMM, Kind.MEMORY):
        at = np.flatnonzero(rows.kind == kind)
        parts.append((at, roofline.predict(rows.select(at), {}, sku, State.BURST)))
    merged = merge(len(rows), parts)
    for name in Times.__struct_fields__:
        if name not in ("refusal", "refusals", "kernel_names"):
            np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name), err_msg=name)
    said = [merged.refusals[code] if code >= 0 else "" for code in merged.refusal]
    assert said == [whole.refusals[code] if code >= 0 else "" for code in whole.refusal]
    assert "no nvfp4" in said[2]
