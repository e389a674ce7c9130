"""Low-level counters: which kernels, and how the profilers' tables are read."""

from pathlib import Path

import pytest

from tilewise.calibration import counters
from tilewise.calibration.target import CPU, target
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotAvailable

H100 = target(Database.packaged().sku("h100-sxm5-80gb"))
METRICS = {"duration_ns": "gpu__time_duration.sum", "tensor_pct": "sm__pipe_tensor.pct"}
NCU = """==PROF== Connected to process 7
==PROF== Profiling "x": 0%....100% - 2 passes
"ID","Process ID","Kernel Name","gpu__time_duration.sum","sm__pipe_tensor.pct"
"","","","ns","%"
"0","7","void bitwise_not_kernel(short*)","2,100","0"
"1","7","nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT","1,523,456","92.5"
"2","7","void bitwise_not_kernel(short*)","2,050","0"
"3","7","void cutlass::Kernel2<cutlass_80_x>(cutlass_80_x::Params)","88,000","40.25"
"4","7","cublasLt::splitKreduce_kernel","4,000","n/a"
"""
ROCPROF = """Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value
2,gemm,SQ_WAVES,512
1,bitwise_not,SQ_WAVES,1
2,gemm,SQ_INSTS,9000
"""


def test_fifty_to_sixty_counters_of_thirty_kernels_are_planned() -> None:
    assert 50 <= len(counters.table()["metrics"]["sm_90"]) <= 60
    pytest.importorskip("torch")
    assert len(counters.works(H100)) == 30


def test_ncus_table_is_split_by_marker_into_works(tmp_path: Path) -> None:
    groups = counters.split(counters.ncu_rows(NCU, METRICS))
    assert [[row["duration_ns"] for row in group] for group in groups] == [["1523456"], ["88000", "4000"]]


def test_the_written_table_has_a_row_a_kernel_and_empty_cells_for_what_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    todo = counters.works(H100)[:2]
    path = counters.write(tmp_path / "c.csv", todo, counters.split(counters.ncu_rows(NCU, METRICS)), list(METRICS))
    lines = path.read_text().splitlines()
    assert lines[0] == "family,key,kernel,duration_ns,tensor_pct"
    assert lines[2] == "gemm,fwd/bf16/4096/4096/4096/2,cutlass_80_x,88000,40.25"
    assert lines[3].endswith(",splitKreduce_kernel,4000,") or lines[3].endswith("cublasLt::splitKreduce_kernel,4000,")


def test_rocprofs_table_is_read_by_launch() -> None:
    metrics = {"waves": "SQ_WAVES", "instructions": "SQ_INSTS"}
    rows = counters.rocprof_rows(ROCPROF, metrics)
    assert rows == [{"kernel": "bitwise_not", "waves": "1"}, {"kernel": "gemm", "waves": "512", "instructions": "9000"}]


def test_output_without_a_table_gives_no_rows() -> None:
    assert counters.ncu_rows("==ERROR== ERR_NVGPUCTRPERM\n", METRICS) == []


def test_a_missing_profiler_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotAvailable, match="ncu is not installed here; counters are skipped"):
        counters.collect(H100, tmp_path)
    with pytest.raises(NotAvailable, match="no list of counters for cpu"):
        counters.collect(CPU, tmp_path)
