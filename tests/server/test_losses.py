"""Where the time of a step goes, and what would help."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind
from tilewise.hwdb.times import Wall
from tilewise.server.architecture import Architecture, read_with
from tilewise.server.step.losses import CAUSES
from tilewise.server.step.predict import predict
from tilewise.server.workload import Workload

SMALL = json.dumps({"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4,
                    "intermediate_size": 4096, "vocab_size": 50257})  # fmt: skip
TRAIN = Workload(phase="train", batch=1, sequence=4096)
WORKLOADS = [
    TRAIN,
    Workload(phase="train", batch=2, sequence=512, recompute="full", mode="compiled"),
    Workload(phase="prefill", batch=1, sequence=2048, tensor_parallel=2),
    Workload(phase="decode", batch=4, context=1024, mode="graph"),
]


@pytest.fixture(scope="module")
def h100() -> Gpu:
    return Database.packaged().gpu("h100-sxm5-80gb")


def small(sizes: Mapping[str, int] | None = None) -> Architecture:
    return read_with(SMALL, sizes or {"vocab_size": 50304})


def cause(losses: tuple[float, ...], name: str) -> float:
    return losses[CAUSES.index(name)]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: f"{workload.phase}-{workload.mode}")
def test_causes_and_walls_of_the_layers_add_up_to_the_step(h100: Gpu, workload: Workload) -> None:
    report = predict(h100, small(), workload)
    assert report.step.time is not None
    for parts in ([layer.losses for layer in report.layers], [layer.walls for layer in report.layers]):
        assert np.sum(parts) == pytest.approx(report.step.time.time_s)
        assert np.min(parts) >= -1e-12
    assert sum(report.step.losses) == pytest.approx(report.step.time.time_s)
    assert report.step.walls == pytest.approx(np.sum([layer.walls for layer in report.layers], axis=0).tolist())


def test_the_useful_share_is_the_mfu_and_recompute_shows_as_extra(h100: Gpu) -> None:
    plain, again = (predict(h100, small(), Workload(phase="train", batch=1, sequence=4096, recompute=how)).step
                    for how in ("none", "full"))  # fmt: skip
    assert plain.time is not None and again.time is not None
    assert cause(plain.losses, "useful") / plain.time.time_s == pytest.approx(plain.mfu)
    assert cause(again.losses, "useful") == pytest.approx(cause(plain.losses, "useful"))
    assert cause(again.losses, "extra") > 3 * cause(plain.losses, "extra")


def test_an_odd_vocabulary_loses_its_time_to_alignment_in_the_head(h100: Gpu) -> None:
    odd = predict(h100, small({"vocab_size": 50257}), TRAIN)
    head = next(layer for layer in odd.layers if layer.name == "lm_head")
    assert cause(head.losses, "alignment") > 0.2 * sum(head.losses)
    assert cause(predict(h100, small(), TRAIN).step.losses, "alignment") == 0


def test_a_small_model_loses_its_time_to_launches(h100: Gpu) -> None:
    report = predict(h100, small({"hidden_size": 256}), Workload(phase="decode", batch=1, context=128))
    assert cause(report.step.losses, "launch") > 0.5 * sum(report.step.losses)
    assert report.step.walls[Wall.LAUNCH] > 0.5 * sum(report.step.walls)


@dataclass(frozen=True)
class PowerAlone:
    """A calibration that holds a power model and nothing else; figures near those of an H100."""

    id: str = "power-alone"
    sha256: str = "0" * 64

    def model(self, family: str) -> Mapping[str, Any]:
        figures = {
            "static_w": 150.0,
            "attention": 1.2,
            "joule_per_byte": 60e-12,
            "joule_per_flop": [0.8e-12] * len(Precision),
        }
        fit = {"sensitivity": [[0.0, 0.6]] * len(Kind), "clock_error": 0.02}
        return {**figures, **fit} if family == "power" else {}


def test_energy_needs_a_power_model_and_stays_within_the_power_limit(h100: Gpu) -> None:
    assert predict(Gpu(h100.sku), small(), TRAIN).step.energy is None
    step = predict(Gpu(h100.sku, PowerAlone()), small(), TRAIN).step
    assert step.energy is not None and step.time is not None and step.flops_per_j is not None
    assert step.energy.low_j < step.energy.energy_j < step.energy.high_j
    assert 150 * step.time.time_s < step.energy.energy_j <= h100.sku.tdp_w * step.time.time_s
    assert step.flops_per_j == pytest.approx(step.flops["causal"] / step.energy.energy_j)
