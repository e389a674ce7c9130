"""torch's math path of attention: products and a softmax of their own, no fused kernel."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.table import Kind, Layout
from tilewise.server.architecture import read
from tilewise.server.operators import build
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


def test_a_shared_head_is_a_view_for_one_sequence_and_copied_for_several() -> None:
    falcon = read(
        json.dumps({"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 2})
    )
    for batch, layout in ((1, Layout.FORWARD), (2, Layout.INPUT_GRADIENT)):
        table = build(falcon, Workload(phase="prefill", batch=batch, sequence=1024, stack="transformers", mode="eager"))
        names = [table.labels[code].name for code in table.label]
        scores = [at for at, name in enumerate(names) if name == "scores" and table.kind[at] == Kind.GEMM]
        assert {int(table.layout[at]) for at in scores} == {int(layout)}
        assert ("lift_k" in names) == (batch > 1)


def test_an_operand_of_two_gib_takes_an_elementwise_kernel_in_parts() -> None:
    gpu = Database.packaged().gpu("h100-sxm5-80gb")
    falcon = read(
        json.dumps({"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 2})
    )
    launched = []
    for sequence in (1024, 3000, 6000):
        work = Workload(phase="prefill", batch=1, sequence=sequence, stack="transformers", mode="eager", cache="none")
        launched.append(predict(gpu, falcon, work, detailed=False).step.launches)
    assert launched[0] < launched[1] < launched[2]
