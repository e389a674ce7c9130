"""An engine's predicted step against measured serving: a bound on the middle, since nothing here was fitted to it."""

import csv
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.errors import TilewiseError

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "research"))
judge = import_module("judge_serving")
EVERY = 8  # rows of which one is asked


@pytest.mark.parametrize("engine", ["trtllm", "vllm", "sglang"])
def test_the_median_step_of_an_engine_is_near_the_measured_one(engine: str, shared: Path) -> None:
    left: Counter[str] = Counter()
    with (shared / "measurements" / "serving.csv").open(newline="", encoding="utf-8") as file:
        asked = [case for case in judge.cases(csv.DictReader(file), left) if case.engine == engine]
    ratios = []
    for case in asked[::EVERY]:
        try:
            ratios.append(judge.judged(case, shared / "configs").ratio)
        except (TilewiseError, ValueError) as error:  # what does not fit or is not published is counted by the script
            left[str(error)] += 1
    assert len(ratios) > 30 and 0.8 < np.median(ratios) < 1.25


def test_a_row_is_asked_by_what_its_words_mean() -> None:
    row = {
        "gpu": "B200-SXM", "backend": "vllm", "model_path": "openai/gpt-oss-120b", "precision": "fp4", "mode": "agg",
        "isl": "1024", "osl": "512", "concurrency": "16", "batch_size": "", "gemm_quant_mode": "nvfp4",
        "moe_quant_mode": "nvfp4", "tp_size": "4", "pp_size": "1", "attention_dp_size": "1", "moe_tp_size": "1",
        "moe_ep_size": "4", "tpot_ms": "5",
    }  # fmt: skip
    left: Counter[str] = Counter()
    (case,) = judge.cases([row, {**row, "mode": "disagg"}, {**row, "attention_dp_size": "4"}], left)
    assert (case.precision, case.batch, case.ranks, case.expert_ranks, case.measured_s) == ("mxfp4", 16, 4, 4, 0.005)
    assert left == {"disaggregated": 1, "data or pipeline parallel": 1}
