"""torch's math path of attention: products and a softmax of their own, no fused kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tilewise.hwdb.database import Database
from tilewise.server.architecture import read
from tilewise.server.step.predict import predict
from tilewise.server.workload import Workload

LLAMA = read((Path(__file__).resolve().parents[3] / "examples" / "llama-3-8b.json").read_text(encoding="utf-8"))


def test_the_math_path_is_its_products_and_slower_than_a_fused_kernel() -> None:
    work, a100 = (
        Workload(phase="prefill", sequence=4096, stack="transformers"),
        Database.packaged().gpu("a100-sxm-80gb"),
    )
    fused, math = (predict(a100, LLAMA, replace(work, attention_backend=name)) for name in ("auto", "math"))
    assert fused.step.time is not None and math.step.time is not None
    assert math.step.time.time_s > 2 * fused.step.time.time_s
    assert {"scores", "weighted_values", "softmax"} <= {label.name for label in math.table.labels}
    assert "attention" not in {label.name for label in math.table.labels}
