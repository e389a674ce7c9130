"""From an architecture, a workload and a GPU to the report."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.times import Wall
from tilewise.server.architecture import Architecture, read_with
from tilewise.server.step import predict as predict_module
from tilewise.server.step.predict import predict, predict_many
from tilewise.server.workload import Workload

Llama = Callable[..., Architecture]
TRAIN = Workload(phase="train", batch=1, sequence=4096)


@pytest.fixture(scope="module")
def h100() -> Gpu:
    return Database.packaged().gpu("h100-sxm5-80gb")


def test_the_step_lasts_as_long_as_the_slower_of_gpu_and_cpu(h100: Gpu, llama: Llama) -> None:
    large, tiny = (predict(h100, llama(hidden_size=h, intermediate_size=4 * h), TRAIN).step for h in (4096, 512))
    for step in (large, tiny):
        assert step.time is not None
        assert step.time.time_s == pytest.approx(max(step.busy.time_s + step.gap_s, step.issue_s))
    decode = predict(h100, llama(hidden_size=512), Workload(phase="decode", context=128, mode="eager")).step
    assert decode.regime == "overhead" and decode.wall == Wall.LAUNCH


def test_walls_and_layers_add_up_to_the_step_and_operators_to_the_busy_time(h100: Gpu, llama: Llama) -> None:
    report = predict(h100, llama(), TRAIN)
    assert report.step.time is not None
    assert sum(report.step.walls) == pytest.approx(report.step.time.time_s)
    assert sum(layer.time.time_s for layer in report.layers) == pytest.approx(report.step.time.time_s)
    assert sum(operator.total_s for operator in report.operators) == pytest.approx(report.step.busy.time_s)
    assert sum(layer.share for layer in report.layers) == pytest.approx(1)
    assert sum(o.count * o.kernels for o in report.operators) == pytest.approx(report.step.launches)


def test_an_interval_of_a_sum_is_narrower_than_the_sum_of_intervals(h100: Gpu, llama: Llama) -> None:
    report = predict(h100, llama(), TRAIN)
    busy = report.step.busy
    assert busy.low_s < busy.time_s < busy.high_s
    rows = float((report.table.count * (report.times.high_s - report.times.time_s)).sum())
    assert 0.5 * rows < busy.high_s - busy.time_s < rows


def test_utilisation_names_its_peak_and_never_passes_it(h100: Gpu, llama: Llama) -> None:
    step = predict(h100, llama(), TRAIN).step
    assert step.mfu is not None and step.hfu is not None and 0 < step.mfu < step.hfu < 1
    assert step.peak.kind == "dense" and step.peak.tflops == pytest.approx(989.4, abs=0.1)
    with pytest.raises(TilewiseError, match="the peak or the FLOP count is wrong"):  # G06
        predict_module._check_utilisation(np.array([1.04]), step.peak)


def test_a_row_without_a_time_leaves_the_step_without_one_and_says_why(h100: Gpu, llama: Llama) -> None:
    report = predict(h100, llama(), TRAIN)
    third = np.arange(len(report.times)) == 3
    unknown = np.where(third, np.nan, report.times.time_s)
    refused = replace(
        report.times, time_s=unknown, refusal=np.where(third, 0, -1), refusals=("too far from every point",)
    )
    (step,) = predict_module.steps_of(h100, TRAIN, report.step.peak, report.table, refused, None).rows()
    assert (
        step.time is None
        and step.mfu is None
        and step.energy is None
        and step.refusal.endswith("too far from every point")
    )


def test_a_model_that_does_not_fit_is_said_so_in_the_headline(h100: Gpu, llama: Llama) -> None:
    report = predict(h100, llama(num_hidden_layers=80), TRAIN)
    assert not report.fits and "does not fit" in report.headline
    assert predict(h100, llama(num_hidden_layers=2), TRAIN).fits


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
@pytest.mark.parametrize("mode", ["eager", "compiled", "graph"])
def test_many_candidates_are_predicted_as_each_alone(h100: Gpu, phase: str, mode: str) -> None:
    text = json.dumps({"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4,
                       "intermediate_size": 2048, "vocab_size": 32000})  # fmt: skip
    length = {"context": 512} if phase == "decode" else {"sequence": 512}
    workload = Workload(phase=phase, batch=2, mode=mode, **length)  # type: ignore[arg-type]
    sizes = np.array([2048, 2056, 4000])
    together = predict_many(h100, read_with(text, {"intermediate_size": sizes}), workload).steps
    for index, size in enumerate(sizes):
        alone = predict(h100, read_with(text, {"intermediate_size": int(size)}), workload).step
        assert alone.time is not None
        assert together.time_s[index] == pytest.approx(alone.time.time_s)
        assert together.sums.high_s[index] == pytest.approx(alone.time.high_s)
        assert together.mfu[index] == pytest.approx(alone.mfu)
        assert together.sums.launches[index] == alone.launches


def test_work_is_emitted_once_for_a_thousand_candidates(h100: Gpu, llama: Llama) -> None:
    one = predict(h100, llama(), TRAIN).table
    text = json.dumps({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
                       "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256})  # fmt: skip
    many = predict_many(h100, read_with(text, {"intermediate_size": np.arange(1, 1001) * 64}), TRAIN).steps
    assert len(many.time_s) == 1000 and len(one) < 150


def test_a_28_layer_model_decodes_with_hundreds_of_launches(h100: Gpu, config: Callable[[str], Architecture]) -> None:
    model = config("qwen2/Qwen2-1.5B-Instruct")  # G52: 430 and 280 launches a token elsewhere
    eager, graph = (
        predict(h100, model, Workload(phase="decode", batch=1, context=1024, mode=mode)).step
        for mode in ("eager", "graph")
    )
    assert 1000 < eager.launches < 1400 and 250 < graph.launches < 550
    assert eager.time is not None and graph.time is not None and eager.time.time_s > graph.time.time_s


def test_eager_layers_launch_the_kernels_that_a_profile_of_transformers_shows(h100: Gpu, shared: Path) -> None:
    """All but Mixtral's, whose experts take up to three kernels a layer more or fewer: small sorts, and products that cuBLAS splits."""
    rows = list(
        csv.DictReader((shared / "truth/h100/hf_transformers_eager.csv").read_text(encoding="utf-8").splitlines())
    )
    launched: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    for row in rows:
        text = (shared / "truth/h100/configs" / f"{row['model']}.json").read_text(encoding="utf-8")
        options = {"optimizer": "none"} if row["phase"] == "train" else {"cache": "none"}
        workload = Workload(phase=row["phase"], batch=int(row["b"]), sequence=int(row["s"]), mode="eager", **options)
        model = read_with(text, {"num_hidden_layers": int(row["layers"])})
        ours = predict(h100, model, workload).step.launches
        key = (row["model"], row["phase"], row["b"], row["s"])
        launched.setdefault(key, {})[row["layers"]] = (ours, float(row["kernels"]))
    wrong = {}
    for key, by_depth in launched.items():
        ours, truth = ((by_depth["4"][i] - by_depth["2"][i]) / 2 for i in (0, 1))
        if ours != truth:
            wrong[key] = (ours, truth)
    assert all(key[0] == "mixtral" and abs(ours - truth) <= 3 for key, (ours, truth) in wrong.items())
    assert len(wrong) <= 8 and len(launched) == 50
