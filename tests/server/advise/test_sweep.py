"""Sweeps: every point is what predict says of it alone, and cliffs stand where the time for the same work jumps."""

import json
from itertools import product

import pytest

from tilewise.client.client import TilewiseClient
from tilewise.hwdb.errors import InvalidInput, TooLarge
from tilewise.v1.advice_pb2 import Axis, Range, SweepRequest, SweepResponse
from tilewise.v1.advisor_service_pb2 import PredictRequest
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import MODE_COMPILED, MODE_EAGER, PHASE_DECODE, PHASE_TRAIN, Workload

GPT2 = Model(
    config_json=json.dumps(
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    )
)
TRAIN = Workload(phase=PHASE_TRAIN, batch=4, sequence=1024, mode=MODE_COMPILED)
EAGER = Workload(phase=PHASE_TRAIN, batch=16, sequence=1024, mode=MODE_EAGER)
DECODE = Workload(phase=PHASE_DECODE, context=1024)
H100 = "h100-sxm5-80gb"


def swept(*axes: Axis, workload: Workload = TRAIN, gpus: tuple[str, ...] = (H100,)) -> SweepResponse:
    with TilewiseClient() as client:
        return client.sweep(SweepRequest(model=GPT2, workload=workload, gpus=gpus, axes=axes))


def test_every_point_is_what_predict_says_of_it() -> None:
    answer = swept(Axis(field="vocab_size", range=Range(first=50256, last=50264, step=4)))
    with TilewiseClient() as client:
        for point in answer.points:
            model = Model(config_json=GPT2.config_json, overrides={"vocab_size": point.values[0]})
            alone = client.predict(PredictRequest(model=model, workload=TRAIN, gpu=H100))
            assert point.prediction.time_s == pytest.approx(alone.step.prediction.time_s, rel=1e-8)
            assert point.parameter_count == alone.architecture.parameter_count
    assert [list(point.values) for point in answer.points] == [[50256], [50260], [50264]]


def test_the_odd_vocabulary_stands_beside_a_cliff() -> None:
    answer = swept(Axis(field="vocab_size", range=Range(first=50300, last=50308)), workload=EAGER)
    highest = max(answer.cliffs, key=lambda cliff: cliff.time_ratio)
    assert highest.good_value == 50304 and highest.bad_value in (50303, 50305)
    assert highest.cause == "ALIGNMENT" and "lm_head" in highest.message and highest.time_ratio > 1.2


def test_a_smooth_curve_has_no_cliffs() -> None:
    answer = swept(Axis(field="intermediate_size", range=Range(first=2816, last=3328, step=128)))
    assert len(answer.points) == 5 and not answer.cliffs


def test_a_larger_batch_that_costs_nothing_is_no_cliff() -> None:
    assert not swept(Axis(field="batch", values=[1, 2, 3, 4, 8, 16]), workload=DECODE).cliffs


def test_two_axes_make_a_grid_on_every_gpu() -> None:
    axes = Axis(field="batch", values=[1, 2]), Axis(field="num_hidden_layers", values=[2, 4, 6])
    answer = swept(*axes, workload=DECODE, gpus=(H100, "mi300x"))
    seen = {(point.gpu, *point.values) for point in answer.points}
    assert seen == {(gpu, b, n) for gpu in (H100, "mi300x") for b in (1, 2) for n in (2, 4, 6)}
    assert len(answer.points) == len(seen)


def test_an_impossible_shape_is_an_error_of_its_own_point() -> None:
    answer = swept(Axis(field="num_attention_heads", values=[12, 13, 16]))
    errors = {point.values[0]: point.error.message for point in answer.points if point.HasField("error")}
    assert set(errors) == {13} and "no multiple of num_attention_heads 13" in errors[13]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([], "0 axes"),
        ([Axis(field="batch", values=[1])] * 2, "given twice"),
        ([Axis(field="batch", range=Range(first=4, last=2))], "last no less"),
        ([Axis(values=[1])], "name of a size"),
    ],
)
def test_a_bad_axis_is_refused_in_words(axes: list[Axis], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        swept(*axes)


def test_too_many_points_are_refused_before_any_is_made() -> None:
    wide = Range(first=1, last=2_000)
    with pytest.raises(TooLarge, match="4,000,000 candidates"):
        swept(Axis(field="hidden_size", range=wide), Axis(field="intermediate_size", range=wide))


def test_a_field_that_no_model_has_is_refused_for_every_point() -> None:
    answer = swept(Axis(field="windows", values=[1, 2]))
    assert all("windows" in point.error.message for point in answer.points) and len(answer.points) == 2


def test_a_point_that_does_not_fit_into_the_gpu_says_so() -> None:
    answer = swept(Axis(field="batch", values=[1, 100_000]), workload=DECODE)
    assert [point.fits for point in answer.points] == [True, False]


def test_points_of_a_gpu_and_a_workload_come_in_the_order_of_the_axes_whatever_they_run() -> None:
    """torch.compile pads some of the vocabularies alone, and the GPUs take turns."""
    vocabularies, heads, batches = (50256, 50257, 50264, 50261), (16, 12), (4, 1)
    sizes = Axis(field="vocab_size", values=vocabularies), Axis(field="num_attention_heads", values=heads)
    for gpu in (H100, "mi300x"):
        points = [point for point in swept(*sizes, gpus=(H100, "mi300x")).points if point.gpu == gpu]
        assert [tuple(point.values) for point in points] == list(product(vocabularies, heads))
    points = list(swept(sizes[0], Axis(field="batch", values=batches)).points)
    for batch in batches:
        assert [point.values[0] for point in points if point.values[1] == batch] == list(vocabularies)
