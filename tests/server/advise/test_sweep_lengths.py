"""A sweep over lengths is one pass over all of them, and says of each what a question about it alone is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.server.advise.subject import Subject
from tilewise.server.advise.sweep import Axis, sweep
from tilewise.server.architecture.sizes import column
from tilewise.server.step.predict import Shapes, predict_many
from tilewise.server.workload import TOGETHER_MAX, Workload

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LENGTHS = (1, 2, 127, 512, 4096, 5000)
WORKLOADS = {
    "served prefill": Workload(phase="prefill", sequence=1),
    "served decode": Workload(phase="decode", context=1, batch=3),
    "eager training": Workload(phase="train", sequence=1, recompute="full"),
    "compiled training": Workload(phase="train", sequence=1, mode="compiled"),
    "eager decode": Workload(phase="decode", context=1, mode="eager"),
    "math attention": Workload(phase="prefill", sequence=1, attention_backend="math"),
}


def told(shapes: Shapes, count: int) -> list[list[object]]:
    sums = shapes.steps.sums
    values = (sums.time_s, sums.low_s, sums.high_s, sums.launches, shapes.memory.total_bytes, shapes.steps.tokens_per_s)
    return [list(each) for each in zip(*(column(value, count) for value in values), strict=True)]


@pytest.mark.parametrize("config", ["llama-3-8b.json", "gpt2.json"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_point_is_told_what_it_is_told_alone(name: str, config: str) -> None:
    gpu, subject = Database.packaged().gpu("h100-sxm5-80gb"), Subject((EXAMPLES / config).read_text(), {})
    work = WORKLOADS[name]
    length = "context" if work.phase == "decode" else "sequence"
    axes = [Axis("batch", (1, 4)), Axis(length, LENGTHS)]
    points = [(batch, size) for batch in (1, 4) for size in LENGTHS]
    passes = [each for found in sweep(subject, work, [gpu], axes) for each in found]
    assert len(passes) < len(points) / 2
    for each in passes:
        assert each.shapes is not None
        for at, row in zip(each.at.tolist(), told(each.shapes, len(each.at)), strict=True):
            batch, size = points[at]
            alone = predict_many(gpu, subject.architecture, replace(work, batch=batch, **{length: size}))
            np.testing.assert_allclose(np.array(row, float), np.array(told(alone, 1)[0], float), rtol=1e-12)


def test_a_length_beyond_what_products_of_whole_numbers_hold_is_asked_alone() -> None:
    gpu, subject = Database.packaged().gpu("h100-sxm5-80gb"), Subject((EXAMPLES / "gpt2.json").read_text(), {})
    axes = [Axis("sequence", (128, 256, 2 * TOGETHER_MAX, 1 << 39))]
    passes = [each for found in sweep(subject, WORKLOADS["served prefill"], [gpu], axes) for each in found]
    by_point = {at: each for each in passes for at in each.at.tolist()}
    assert by_point[0].shapes is not None and by_point[0].shapes is by_point[1].shapes
    assert by_point[2].shapes is not None and np.isfinite(by_point[2].shapes.memory.total_bytes)
    assert by_point[3].shapes is None and "out of range" in str(by_point[3].error)
