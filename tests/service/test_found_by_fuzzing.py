"""What changed valid requests (scripts/stress/fuzz_service.py) brought to light, one test a bug."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewise.client.client import TilewiseClient
from tilewise.client.publish import publish
from tilewise.hwdb.admission import check
from tilewise.hwdb.calibration import Calibration, canonical, identify, read_columns
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import Expired, InvalidInput, NotAvailable, TooLarge
from tilewise.hwdb.trial import tried
from tilewise.server.advise.asked import each_possible
from tilewise.server.advise.subject import Subject
from tilewise.server.deadline import waited_for
from tilewise.server.gate.policy import read as read_policy
from tilewise.server.limits import limited_to
from tilewise.server.service.resources import window
from tilewise.server.service.servicers import services
from tilewise.server.validate.sheet import read as read_sheet
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1.check_pb2 import CheckItem, CheckRequest, SavedPrediction
from tilewise.v1.model_pb2 import Model
from tilewise.v1.prediction_pb2 import TRUST_MEASURED, Prediction
from tilewise.v1.report_pb2 import Step
from tilewise.v1.workload_pb2 import PHASE_DECODE, PHASE_PREFILL, PHASE_TRAIN, PRECISION_FP8, Workload

Serve = Callable[..., str]
Edited = Callable[..., Calibration]
ROOT = Path(__file__).resolve().parents[2]
LLAMA = (ROOT / "examples" / "llama-3-8b.json").read_text()
POLICY = (ROOT / "examples" / "gate" / "tilewise.toml").read_text()
BERT = json.dumps({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                   "intermediate_size": 3072, "vocab_size": 30522, "architectures": ["BertModel"]})  # fmt: skip
PREFILL = Workload(phase=PHASE_PREFILL, batch=1, sequence=512)
PUBLISHED = "mi300x"  # of others' measurements, so without a file that says which calibration answers
PACKAGED = Database.packaged()
ADVISOR = services()["AdvisorService"]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """edited(file, **entries): the packaged MI300X calibration with entries of one of its JSON files changed, sealed anew."""

    def edited(name: str, **entries: object) -> Calibration:
        folder = tmp_path / f"edited-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(PACKAGED.folder / "calibrations" / PUBLISHED / str(PACKAGED.active(PUBLISHED)), folder)
        content = json.loads((folder / name).read_text())
        (folder / name).write_bytes(canonical({**content, **entries}))
        return identify(folder)

    return edited


def ask(calibration: str = "", gpu: str = PUBLISHED) -> advisor.PredictRequest:
    return advisor.PredictRequest(model=Model(config_json=LLAMA), workload=PREFILL, gpu=gpu, calibration=calibration)


def test_an_upload_does_not_answer_before_it_is_published(serve: Serve, tmp_path: Path, edited: Edited) -> None:
    address, newer = serve(store=tmp_path / "store"), edited("card.json", date="2099-01-01")
    list(publish(newer, address, promote=False))
    with TilewiseClient(address) as client:
        assert client.predict(ask()).gpu.calibration == PACKAGED.active(PUBLISHED)
        assert client.predict(ask(newer.id)).gpu.calibration == newer.id


@pytest.mark.parametrize(
    "name, entries",
    [
        ("models/launch.json", {"eager": {}}),
        ("models/gemm.json", {"law": True}),
        ("models/gemm.json", {"law": "power"}),
        ("models/gemm.json", {"together": 7}),
        ("models/gemm.json", {"together": "another GPU"}),
    ],
)
def test_a_calibration_whose_models_fail_is_never_published_and_asking_for_it_says_so(
    serve: Serve, tmp_path: Path, edited: Edited, name: str, entries: dict[str, object]
) -> None:
    address, broken = serve(store=tmp_path / "store"), edited(name, **entries)
    with pytest.raises(NotAvailable, match="must not answer"):
        list(publish(broken, address, promote=True))
    with TilewiseClient(address) as client:
        with pytest.raises(NotAvailable) as caught:
            client.predict(ask(broken.id))
        assert caught.value.reason == "BAD_CALIBRATION" and broken.id in caught.value.message
        assert client.predict(ask()).gpu.calibration == PACKAGED.active(PUBLISHED)


def test_every_packaged_calibration_stands_its_trial() -> None:
    for sku in PACKAGED.skus():
        active = PACKAGED.active(sku)
        if active:
            tried(PACKAGED.calibration(sku, active), PACKAGED.sku(sku))


@pytest.mark.parametrize("entries", [{"trust": []}, {"held_out": None}, {"held_out": [{"family": "gemm"}]}])
def test_a_card_that_no_list_could_show_is_refused_at_upload(
    serve: Serve, tmp_path: Path, edited: Edited, entries: dict[str, object]
) -> None:
    address = serve(store=tmp_path / "store")
    with pytest.raises(InvalidInput) as caught:
        list(publish(edited("card.json", **entries), address, promote=False))
    assert caught.value.reason == "BAD_CALIBRATION"
    with TilewiseClient(address) as client:
        assert len(client.list_calibrations(PUBLISHED).calibrations) == 1


def test_a_calibration_without_one_of_its_files_is_found_and_no_folder_of_the_servers_is_told(
    variant: Callable[[str], Calibration],
) -> None:
    calibration = variant("a")
    (calibration.folder / "measurements" / "kernels.csv").unlink()
    sku = PACKAGED.sku(calibration.sku)
    found = [finding for finding in check(identify(calibration.folder), sku) if finding.error]
    assert [finding.code for finding in found] == ["BAD_SCHEMA"]
    assert "kernels.csv" in found[0].message and "/" not in found[0].message


def test_sizes_that_no_operator_sees_can_be_swept_and_batched() -> None:
    """BERT's vocabulary changes its parameters and its memory, but nothing that runs in a forward pass."""
    axis = advice.Axis(field="vocab_size", values=[30_000, 31_000, 32_000])
    request = advice.SweepRequest(model=Model(config_json=BERT), workload=PREFILL, gpus=["h100-sxm5-80gb"], axes=[axis])
    points = [point for part in ADVISOR.Sweep(request) for point in part.points]
    assert len({point.parameter_count for point in points}) == len({point.memory_bytes for point in points}) == 3
    assert len({point.prediction.time_s for point in points}) == 1
    asked = [advisor.PredictRequest(model=Model(config_json=BERT, overrides={"vocab_size": size}), workload=PREFILL,
                                    gpu="h100-sxm5-80gb") for size in axis.values]  # fmt: skip
    together = ADVISOR.BatchPredict(advisor.BatchPredictRequest(requests=asked)).results
    assert [each.response for each in together] == [ADVISOR.Predict(each) for each in asked]


def test_a_refused_step_holds_no_number_that_is_none() -> None:
    workload = Workload(phase=PHASE_TRAIN, batch=1, sequence=513, precision=PRECISION_FP8)
    for detail in (0, 1, 2, 3):
        request = ask(gpu="h100-sxm5-80gb")
        request.workload.CopyFrom(workload)
        request.detail = detail
        step = ADVISOR.Predict(request).step
        assert step.refusal and not step.HasField("prediction") and step.busy_s == 0


def test_a_vision_part_of_another_family_is_an_error_that_names_what_is_missing() -> None:
    text = json.dumps({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3"},
                       "vision_config": {"model_type": "clip_vision_model"}})  # fmt: skip
    with pytest.raises(InvalidInput):
        ADVISOR.Predict(advisor.PredictRequest(model=Model(config_json=text), workload=PREFILL, gpu="mi300x"))


@pytest.mark.parametrize("weight", [math.inf, math.nan, -1.0])
def test_a_weight_that_is_no_share_is_refused(weight: float) -> None:
    mix = [advice.WeightedWorkload(workload=PREFILL, weight=weight)]
    with pytest.raises(InvalidInput, match="above 0 and finite"):
        list(ADVISOR.Recommend(advice.RecommendRequest(model=Model(config_json=LLAMA), workloads=mix, gpus=["mi300x"])))


@pytest.mark.parametrize(
    "prediction",
    [
        Prediction(),
        Prediction(time_s=1, time_low_s=2, time_high_s=3, trust=TRUST_MEASURED),
        Prediction(time_s=math.nan, time_low_s=0, time_high_s=1, trust=TRUST_MEASURED),
        Prediction(time_s=1, time_low_s=1, time_high_s=1),
    ],
)
def test_a_saved_prediction_that_no_prediction_can_be_is_refused(prediction: Prediction) -> None:
    workload = Workload(phase=PHASE_DECODE, batch=16, context=2048, mode=3)
    before = SavedPrediction(gpu="h100-sxm5-80gb", workload=workload, step=Step(prediction=prediction))
    item = CheckItem(path="configs/x.json", head=LLAMA, base_predictions=[before])
    with pytest.raises(InvalidInput) as caught:
        ADVISOR.Check(CheckRequest(policy_toml=POLICY, items=[item], date="2026-11-28"))
    assert caught.value.reason == "OLD_BASELINE"


def reshape(**overrides: int) -> advice.RecommendRequest:
    mix = [advice.WeightedWorkload(workload=PREFILL)]
    model = Model(config_json=LLAMA, overrides=overrides)
    return advice.RecommendRequest(model=model, workloads=mix, gpus=[PUBLISHED], kinds=[advice.ADVICE_KIND_RESHAPE])


def test_reading_shapes_that_are_all_impossible_stops_when_nobody_waits() -> None:
    """Each of them is read by itself: a minute where there are many."""
    looks, refused = iter(range(100)), list[int]()
    changes = {"num_key_value_heads": np.full(1000, 3)}

    def look() -> None:
        if next(looks, 100) >= 50:
            raise Expired("x", reason="EXPIRED")

    with waited_for(look), pytest.raises(Expired):
        each_possible(
            Subject(LLAMA, {}, ""), changes, np.arange(1000), lambda *_: None, lambda row, _: refused.append(row)
        )
    assert len(refused) < 50


def test_a_search_that_would_combine_too_many_sizes_is_refused() -> None:
    with limited_to(20), pytest.raises(TooLarge) as caught:
        list(ADVISOR.Recommend(reshape()))
    assert caught.value.reason == "TOO_MANY_CANDIDATES"


@pytest.mark.parametrize("token", ["9" * 5000, "9" * 16, "-1", "x"])
def test_a_token_of_a_page_that_is_none_of_ours_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="none of ours"):
        window(1, token)


def test_a_phase_that_is_no_word_is_refused() -> None:
    text = '[check]\ngpus = ["mi300x"]\n[[check.workload]]\nname = "serve"\nphase = ["train"]\nsequence = 512\n'
    with pytest.raises(InvalidInput, match="phase"):
        read_policy(text)


def test_a_table_with_a_cell_like_a_book_is_no_table(tmp_path: Path) -> None:
    text = "kind,m,n,k,dtype,time_us\nfwd," + "1" * 200_000 + ",8,8,bf16,1\n"
    with pytest.raises(InvalidInput, match="field larger than field limit"):
        read_sheet(text, "a.csv")
    (tmp_path / "gemm.csv").write_text(text)
    with pytest.raises(InvalidInput, match="field larger than field limit"):
        read_columns(tmp_path / "gemm.csv")
