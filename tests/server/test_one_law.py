"""One change has one value, one interval and one verdict, whoever tells it: predict --advice, recommend, rank, diff and check."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tilewise.client import ranking
from tilewise.client.gate.saved import predictions
from tilewise.client.render.data import to_json
from tilewise.client.render.gate.flips import paired
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.service.servicers import services
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import hardware_service_pb2 as hardware
from tilewise.v1.check_pb2 import (
    VERDICT_FAIL,
    VERDICT_PASS,
    VERDICT_UNCERTAIN,
    CheckItem,
    CheckRequest,
    CheckResponse,
    Comparison,
)
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import Workload

GPU = "h100-sxm5-80gb"
SERVICES: dict[str, Any] = services()
ASK = SERVICES["AdvisorService"]
LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5461, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 4, "vocab_size": 32003, "head_dim": 64,
}  # fmt: skip
NEOX = {
    "model_type": "gpt_neox", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32,
    "num_hidden_layers": 8, "vocab_size": 50257, "hidden_act": "gelu",
}  # fmt: skip
CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "train": (LLAMA, {"phase": "train", "batch": 4, "sequence": 2048}),
    "train with recompute": (NEOX, {"phase": "train", "batch": 2, "sequence": 2048, "recompute": "full"}),
    "prefill": (LLAMA, {"phase": "prefill", "batch": 1, "sequence": 512, "mode": "compiled"}),
    "decode": (NEOX, {"phase": "decode", "batch": 4, "context": 1024, "mode": "eager"}),
}
POLICY = """
[check]
gpus = ["h100-sxm5-80gb"]
[[check.workload]]
name = "asked"
{workload}
[[check.budget]]
config = "*.json"
metric = "tokens_per_s"
max_regression = "0 %"
min_trust = "datasheet"
"""
VERDICTS = {
    advice.GAIN_VERDICT_FASTER: (VERDICT_PASS,),
    advice.GAIN_VERDICT_SLOWER: (VERDICT_FAIL,),
    advice.GAIN_VERDICT_CANNOT_TELL: (VERDICT_PASS, VERDICT_UNCERTAIN),
}


@dataclass(frozen=True)
class Told:
    """A change as advice tells it: of tokens a second, after over before, low, value and high."""

    model: dict[str, object]
    workload: dict[str, object]
    found: advice.Recommendation

    @property
    def changed(self) -> tuple[dict[str, object], dict[str, object]]:
        """The model and the workload with the change."""
        model, workload = dict(self.model), dict(self.workload)
        for change in self.found.changes:
            target = model if change.field in model else workload
            target[change.field] = int(change.to) if change.to.isdigit() else change.to
        return model, workload

    @property
    def bounds(self) -> list[float]:
        (effect,) = self.found.effects
        return [1 / effect.time_ratio_high, 1 / effect.time_ratio, 1 / effect.time_ratio_low]


def workload(fields: dict[str, object]) -> Workload:
    return Workload(**{name: f"{name.upper()}_{value}".upper() if isinstance(value, str) else value
                       for name, value in fields.items()})  # fmt: skip


def policy(fields: dict[str, object]) -> str:
    return POLICY.format(workload="\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items()))


def predicted(model: dict[str, object], fields: dict[str, object], **how: Any) -> advisor.PredictResponse:
    asked = Model(config_json=json.dumps(model))
    answer = ASK.Predict(advisor.PredictRequest(model=asked, workload=workload(fields), gpu=GPU, **how))
    assert isinstance(answer, advisor.PredictResponse)
    return answer


def advised(case: str) -> Iterator[Told]:
    """Everything that recommend says about a case without re-shaping it."""
    model, fields = CASES[case]
    asked = advice.RecommendRequest(
        model=Model(config_json=json.dumps(model)), workloads=[advice.WeightedWorkload(workload=workload(fields))], gpus=[GPU],
        kinds=[advice.ADVICE_KIND_EXECUTION, advice.ADVICE_KIND_FREE_WIN, advice.ADVICE_KIND_PRECISION],
    )  # fmt: skip
    *_, answer = ASK.Recommend(asked)
    yield from (Told(model, fields, found) for found in answer.recommendations)


def checked(told: Told, calibration: str = "", **base: Any) -> CheckResponse:
    model, fields = told.changed
    item = CheckItem(path="a.json", head=json.dumps(model), **(base or {"base": json.dumps(told.model)}))
    answer = ASK.Check(CheckRequest(
        policy_toml=policy(fields), base_policy_toml=policy(told.workload), items=[item], date="2026-11-28",
        calibration=calibration,
    ))  # fmt: skip
    assert isinstance(answer, CheckResponse)
    return answer


def bounds(found: Comparison) -> list[float]:
    return [found.ratio_low, found.ratio, found.ratio_high]


def rounded(found: Comparison) -> str:
    """Its text with twelve digits of every number: sums over saved rows end otherwise than those over live ones."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.12g}", str(found))


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_told_alike_by_recommend_predict_check_diff_and_rank(case: str) -> None:
    model, fields = CASES[case]
    remedies = {each.change: each for each in predicted(model, fields, diagnose=True).diagnosis.remedies}
    saved = predictions(to_json(predicted(model, fields, detail=advisor.DETAIL_OPERATORS)), "saved.json")
    seen = list(advised(case))
    assert len(seen) == len(remedies) >= 4
    for told in seen:
        words = ", ".join(f"{each.field} {getattr(each, 'from')} -> {each.to}" for each in told.found.changes)
        remedy = remedies[words]
        gains = [1 + gain for gain in (remedy.gain_low, remedy.gain, remedy.gain_high)]
        assert gains == pytest.approx(told.bounds, rel=1e-9)

        live, kept = checked(told), checked(told, base_predictions=saved)
        assert rounded(live.comparisons[0]) == rounded(kept.comparisons[0])
        assert bounds(live.comparisons[0]) == pytest.approx(told.bounds, rel=1e-9)
        assert live.comparisons[0].verdict in VERDICTS[told.found.verdict]

        (pair,) = paired(live, checked(told, calibration=live.calibrations[GPU]))
        assert pair.old == pair.new and not pair.flips

        if told.found.kind == advice.ADVICE_KIND_PRECISION:
            assert rate(told.changed) / rate((model, fields)) == pytest.approx(told.bounds[1], rel=1e-5)


def test_the_cases_hold_some_two_dozen_changes() -> None:
    assert len([told for case in CASES for told in advised(case)]) >= 24


def rate(asked: tuple[dict[str, object], dict[str, object]]) -> float:
    """Tokens a second as rank has them."""
    model, fields = asked
    gpu = next(gpu for gpu in SERVICES["HardwareService"].ListGpus(hardware.ListGpusRequest()).gpus if gpu.sku == GPU)
    request = advisor.PredictRequest(model=Model(config_json=json.dumps(model)), workload=workload(fields), gpu=GPU)
    answer = ASK.BatchPredict(advisor.BatchPredictRequest(requests=[request]))
    (entry,) = ranking.entries([(1, gpu, str(fields.get("precision", "bf16")))], answer)
    return entry.tokens_per_s


def test_a_saved_prediction_of_another_calibration_shares_nothing_with_the_change() -> None:
    model, fields = CASES["train"]
    told = Told(model, fields, advice.Recommendation(changes=[advice.FieldChange(field="vocab_size", to="32064")]))
    saved = predictions(to_json(predicted(model, fields, detail=advisor.DETAIL_OPERATORS)), "saved.json")
    assert saved is not None
    same = bounds(checked(told, base_predictions=saved).comparisons[0])
    saved[0].step.prediction.calibration = "2020-01-01-00000000"
    other = bounds(checked(told, base_predictions=saved).comparisons[0])
    assert other[1] == same[1] and other[0] < same[0] and other[2] > same[2]


BAD: dict[str, tuple[str, list[float] | None, str]] = {
    "none at all": ("", None, "carries no operators"),
    "a time that is none": ("time_s", [-1.0], "negative or not finite"),
    "an unknown column": ("mm", [0.0], "does not know"),
    "a missing interval": ("low_s", None, "whose times are no interval"),
    "a kind that nobody knows": ("kind", [99.0], "no known kind"),
    "other operators than its step's": ("count", [7.0], "do not add up"),
}  # fmt: skip


@pytest.mark.parametrize(("column", "value", "said"), BAD.values(), ids=BAD)
def test_a_saved_prediction_with_broken_operators_is_refused(column: str, value: list[float] | None, said: str) -> None:
    model, fields = CASES["decode"]
    saved = predictions(to_json(predicted(model, fields, detail=advisor.DETAIL_OPERATORS)), "saved.json")
    assert saved is not None
    kept = [each for each in saved[0].rows if column and each.name != column]
    length = len(saved[0].rows[0].values)
    del saved[0].rows[:]
    saved[0].rows.extend(kept)
    if value is not None:
        saved[0].rows.add(name=column, values=value * length)
    with pytest.raises(InvalidInput, match=said) as caught:
        checked(Told(model, fields, advice.Recommendation()), base_predictions=saved)
    assert caught.value.reason == "OLD_BASELINE"


def test_a_file_saved_without_operators_is_renewed() -> None:
    text = to_json(predicted(*CASES["decode"], detail=advisor.DETAIL_LAYERS))
    with pytest.raises(InvalidInput, match="operators are missing") as caught:
        predictions(text, "old.json")
    assert caught.value.reason == "OLD_BASELINE"
