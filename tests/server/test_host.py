"""What the CPU beside the GPU adds to a step."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.table import Kind
from tilewise.server.architecture import read
from tilewise.server.step.predict import predict
from tilewise.server.step.report import Report
from tilewise.server.step.time import launches, plans, split
from tilewise.server.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
LLAMA = json.loads((ROOT / "examples" / "llama-3-8b.json").read_text(encoding="utf-8"))
DECODE = Workload(phase="decode", batch=16, context=2048, mode="eager")
H100, H200 = (Database.packaged().gpu(name) for name in ("h100-sxm5-80gb", "h200-sxm-141gb"))
TINY = {
    "hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
    "vocab_size": 1024, "num_hidden_layers": 4, "max_position_embeddings": 4096, "pad_token_id": 0,
}  # fmt: skip
ASKED = {
    "prefill": {"sequence": 16, "cache": "none", "logits": "all"}, "train": {"sequence": 16, "optimizer": "none"},
    "decode": {"context": 48},
}  # fmt: skip


def asked(work: Workload, **sizes: object) -> Report:
    return predict(H100, read(json.dumps({**LLAMA, **sizes})), work)


def seconds(report: Report) -> float:
    assert report.step.time is not None
    return report.step.time.time_s


def test_a_growing_cache_waits_for_cudnns_plan_and_flash_attention_does_not() -> None:
    cudnn, flash = asked(DECODE), asked(replace(DECODE, attention_backend="flash"))
    plan = H100.launch("eager").plan_s[1]
    assert seconds(cudnn) - seconds(flash) == pytest.approx(plan, rel=0.1)
    assert any("cuDNN plans" in note for note in cudnn.notes) and not any("plans" in note for note in flash.notes)


def test_layers_that_are_alike_share_a_plan() -> None:
    short, long = (asked(DECODE, num_hidden_layers=layers).step for layers in (2, 32))
    kernels = (long.launches - short.launches) * H100.launch("eager").issue_s[1]
    assert long.issue_s - short.issue_s == pytest.approx(kernels)


def test_a_cache_within_a_window_needs_no_plan() -> None:
    """A full one does not grow; one that still did was not seen to plan (command-r7b, steps-4.csv)."""
    report = asked(DECODE)
    table, times = report.table, report.times
    assert plans(table, times).tolist() == [1]
    for window in (np.where(table.kind == Kind.ATTENTION, 1024, 0), 2 * table.seq_kv):
        assert plans(replace(table, window=window), times).tolist() == [0]


def test_a_product_that_is_split_along_k_launches_the_sum_of_its_parts_too() -> None:
    report = asked(DECODE)
    rows = split(report.table, report.times)
    assert rows.any() and (report.table.m[rows] <= 64).all()
    more = launches(report.table, H100, report.times) - report.table.kernels
    assert (more[rows] == 1).all()


def test_compiled_code_and_graphs_keep_a_static_cache_and_plan_nothing() -> None:
    for mode in ("compiled", "graph"):
        assert asked(replace(DECODE, mode=mode)).step.issue_s < H100.launch("eager").plan_s[0]


def test_a_host_said_with_the_question_decides_an_eager_step() -> None:
    slow, quick = (asked(replace(DECODE, attention_backend="flash", issue_us=each)) for each in (40.0, 20.0))
    assert seconds(quick) == pytest.approx(seconds(slow) / 2, rel=0.01)
    assert any("20 us to issue an eager kernel, as asked" in note for note in quick.notes)


def test_a_host_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="issue_us 2000 is out of range"):
        replace(DECODE, issue_us=2000.0)


def test_an_engines_step_holds_no_time_of_torchs_own_calls() -> None:
    served = asked(Workload(phase="decode", batch=DECODE.batch, context=DECODE.context, stack="vllm"))
    assert seconds(served) == pytest.approx(served.step.busy.time_s + served.step.gap_s, rel=1e-6)


def test_steps_of_tiny_models_last_as_long_as_their_host_takes() -> None:
    """One H200's host, measured by scripts/research/measure_hosts.py; launch.toml's calls and plans are from this table."""
    inside = []
    with (ROOT / "tests/accuracy/measured/hosts/hosts.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            met = row["phase"] == "decode" and row["model"] not in ("llama", "gpt2", "gpt_neox")  # by an earlier model
            work = Workload(
                phase=row["phase"],
                mode=row["mode"],
                attention_backend="flash" if met else "auto",
                **ASKED[row["phase"]],
            )
            time = predict(H200, read(json.dumps({**TINY, "model_type": row["model"]})), work).step.time
            assert time is not None
            inside.append(time.low_s <= 1e-3 * float(row["wall_ms"]) <= time.high_s)
    assert len(inside) == 34 and sum(inside) / len(inside) >= 0.85
