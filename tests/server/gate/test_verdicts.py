"""What a change is worth: broken, kept, not to be told, not evaluated; and the same answer whatever the order."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tilewise.hwdb.errors import InvalidInput, NotAvailable, NotFound
from tilewise.server.service.servicers import services
from tilewise.v1.check_pb2 import (
    VERDICT_ERROR,
    VERDICT_FAIL,
    VERDICT_NOT_JUDGED,
    VERDICT_PASS,
    VERDICT_UNCERTAIN,
    CheckItem,
    CheckRequest,
    CheckResponse,
)
from tilewise.v1.prediction_pb2 import TRUST_MEASURED

Check = Callable[..., CheckResponse]
POLICY = """
[check]
gpus = ["h100-sxm5-80gb"]
[[check.workload]]
name = "train"
phase = "train"
batch = 4
sequence = 2048
[[check.budget]]
config = "configs/*.json"
metric = "{metric}"
{limits}
"""


def policy(limits: str, metric: str = "time_s") -> str:
    return POLICY.format(metric=metric, limits=limits)


def codes(answer: CheckResponse) -> set[str]:
    return {finding.code for finding in answer.findings}


def test_an_odd_vocabulary_breaks_the_budget_beyond_the_interval_and_names_the_cure(check: Check) -> None:
    answer = check(vocab_size=50257)
    (found,) = answer.comparisons
    assert answer.verdict == found.verdict == VERDICT_FAIL
    assert 1.02 < found.ratio_low < found.ratio < found.ratio_high
    assert found.layers[0].name == "lm_head" and found.layers[0].head_s > 3 * found.layers[0].base_s
    assert found.trust == TRUST_MEASURED and found.policy_line == 11 and found.limit == "max_regression 2 %"
    finding = next(finding for finding in answer.findings if finding.code == "TW101")
    assert (finding.field, finding.line, finding.column) == ("vocab_size", 7, 3)
    assert finding.fix.startswith("vocab_size 50257 -> 50304: -")
    assert "TW010" in codes(answer)


def test_the_same_edit_the_other_way_round_passes(check: Check) -> None:
    base = {"model_type": "gpt_neox", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32,
            "num_hidden_layers": 8, "vocab_size": 50257, "hidden_act": "gelu"}  # fmt: skip
    answer = check(base=base)
    assert answer.verdict == VERDICT_PASS
    assert answer.comparisons[0].ratio_high < 1


def test_a_difference_inside_of_the_interval_is_uncertain(check: Check) -> None:
    answer = check(policy(limits='max_regression = "0 %"'), intermediate_size=10304)
    (found,) = answer.comparisons
    assert found.ratio_low < 1 < found.ratio
    assert answer.verdict == VERDICT_UNCERTAIN and "TW103" in codes(answer)


@pytest.mark.parametrize(("limit", "verdict"), [("1 s", VERDICT_PASS), ("1 ms", VERDICT_FAIL)])
def test_an_absolute_limit_judges_a_new_file_too(check: Check, limit: str, verdict: int) -> None:
    answer = check(policy(f'limit = "{limit}"'), base=None)
    assert answer.verdict == verdict
    assert not answer.comparisons[0].HasField("base") and not answer.comparisons[0].HasField("ratio")
    assert ("TW102" in codes(answer)) == (verdict == VERDICT_FAIL)


def test_a_limit_inside_of_the_prediction_s_interval_is_uncertain(check: Check) -> None:
    time_s = check().comparisons or check(num_hidden_layers=9).comparisons
    answer = check(policy(f'limit = "{time_s[0].head * 0.99:.6f} s"'), num_hidden_layers=9)
    assert answer.verdict == VERDICT_UNCERTAIN


def test_more_is_better_where_the_metric_says_so(check: Check) -> None:
    for metric in ("mfu", "tokens_per_s"):
        answer = check(policy('max_regression = "2 %"', metric), vocab_size=50257)
        (found,) = answer.comparisons
        assert found.head < found.base and found.verdict == VERDICT_FAIL
        assert found.ratio_low < found.ratio < found.ratio_high < 1 / 1.02
    assert check(policy('limit = "90 %"', "mfu"), vocab_size=50432).verdict == VERDICT_FAIL


def test_bytes_and_parameters_are_exact(check: Check) -> None:
    for metric in ("memory_bytes", "parameter_count"):
        (found,) = check(policy('max_regression = "0 %"', metric), vocab_size=50432).comparisons
        assert found.ratio_low == found.ratio == found.ratio_high > 1 and found.verdict == VERDICT_FAIL


def test_a_change_of_the_text_alone_is_no_shape_change(check: Check) -> None:
    answer = check(transformers_version="5.0", bos_token_id=7)
    assert list(answer.unchanged_paths) == ["configs/a.json"]
    assert not answer.comparisons and not answer.findings and answer.verdict == VERDICT_PASS


def test_another_tensor_parallel_in_the_policy_is_a_change_of_every_configuration(check: Check) -> None:
    split = policy('max_regression = "2 %"').replace("sequence = 2048", "sequence = 2048\ntensor_parallel = 2")
    text = json.dumps({"model_type": "llama", "vocab_size": 32000, "architectures": ["LlamaForCausalLM"]})
    item = CheckItem(path="configs/a.json", head=text, base=text)
    request = CheckRequest(
        policy_toml=split, base_policy_toml=policy('max_regression = "2 %"'), items=[item], date="2026-11-28"
    )
    (found,) = services()["AdvisorService"].Check(request).comparisons  # type: ignore[attr-defined]
    assert 0.3 < found.ratio < 0.9


def test_a_configuration_that_cannot_be_read_is_an_error_with_its_reason(check: Check) -> None:
    answer = check(num_attention_heads=31)
    assert answer.verdict == VERDICT_ERROR
    assert "31" in answer.comparisons[0].error.message
    assert [finding.code for finding in answer.findings] == ["TW104"]


def test_a_base_that_cannot_be_read_leaves_the_absolute_limits(check: Check) -> None:
    answer = check(policy('max_regression = "2 %"\nlimit = "1 s"'), base={"model_type": "nonsense"})
    assert answer.verdict == VERDICT_NOT_JUDGED and "TW105" in codes(answer)
    regression, limit = answer.comparisons
    assert regression.not_judged.startswith("the base cannot be read: ") and limit.verdict == VERDICT_PASS
    assert not any(each.HasField("ratio") for each in answer.comparisons)


def test_too_little_trust_is_not_a_verdict(check: Check) -> None:
    text = policy('max_regression = "2 %"\nmin_trust = "measured"').replace("h100-sxm5-80gb", "mi300x")
    answer = check(text, vocab_size=50257)
    assert answer.verdict == VERDICT_ERROR and "calibrate" in answer.comparisons[0].error.message


def test_what_fitted_and_no_longer_does_is_told(check: Check) -> None:
    answer = check(policy('limit = "100 s"'), num_hidden_layers=200)
    assert answer.verdict == VERDICT_FAIL and "TW020" in codes(answer)


def test_a_warning_does_not_turn_the_check_red(check: Check) -> None:
    answer = check(policy('max_regression = "2 %"\nseverity = "warning"'), vocab_size=50257)
    assert answer.comparisons[0].verdict == VERDICT_FAIL and answer.verdict == VERDICT_PASS


def test_a_rule_can_be_turned_off_or_made_an_error(check: Check) -> None:
    text = policy('limit = "100 s"')
    for severity, verdict in (("off", VERDICT_PASS), ("error", VERDICT_FAIL)):
        answer = check(text.replace("[[check.w", f'rules = {{ TW010 = "{severity}" }}\n[[check.w'), vocab_size=50257)
        assert answer.verdict == verdict and ("TW010" in codes(answer)) == (severity == "error")


ALLOW = '\n[[check.allow]]\ncode = "TW101"\nconfig = "configs/a.json"\nreason = "agreed in #shapes"\nuntil = {until}\n'


def test_an_allowance_silences_until_its_last_day(check: Check) -> None:
    text = policy('max_regression = "2 %"') + ALLOW.format(until="2026-12-31")
    allowed = check(text, vocab_size=50257, date="2026-12-31")
    assert allowed.verdict == VERDICT_PASS
    assert allowed.comparisons[0].verdict == VERDICT_FAIL
    assert allowed.comparisons[0].suppressed_by == "agreed in #shapes"
    expired = check(text, vocab_size=50257, date="2027-01-01")
    assert expired.verdict == VERDICT_FAIL and "TW202" in codes(expired)


def test_an_allowance_that_silences_nothing_is_told(check: Check) -> None:
    answer = check(policy('max_regression = "2 %"') + ALLOW.format(until='"2027-01-01"'), vocab_size=50432)
    unused = next(finding for finding in answer.findings if finding.code == "TW201")
    assert (unused.path, unused.line) == ("tilewise.toml", 14)


def test_too_old_a_database_and_an_unknown_calibration_are_refused(check: Check) -> None:
    with pytest.raises(NotAvailable, match="2030-01"):
        check(policy('limit = "1 s"').replace("[[check.w", 'hwdb = ">=2030.01"\n[[check.w', 1))
    request = CheckRequest(
        policy_toml=policy('limit = "1 s"'), items=[CheckItem(path="a", head="{}")], date="2026-11-28", calibration="x"
    )
    with pytest.raises(NotFound, match="no GPU of the policy has a calibration 'x'"):
        services()["AdvisorService"].Check(request)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("field", "value"), [("date", "yesterday"), ("items", None), ("policy_toml", "")])
def test_what_a_request_lacks_is_named(field: str, value: Any) -> None:
    facts: dict[str, Any] = {"policy_toml": policy('limit = "1 s"'), "date": "2026-11-28"}
    facts |= {"items": [CheckItem(path="configs/a.json", head="{}")], field: value}
    with pytest.raises(InvalidInput) as caught:
        services()["AdvisorService"].Check(CheckRequest(**facts))  # type: ignore[attr-defined]
    assert caught.value.field == field


def random_pairs(count: int) -> list[CheckItem]:
    """Edits of one to three sizes, some of them impossible."""
    draw = random.Random(8)
    base = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32,
            "num_key_value_heads": 4, "num_hidden_layers": 22, "vocab_size": 32000}  # fmt: skip
    values: dict[str, Callable[[], int]] = {
        "hidden_size": lambda: draw.choice([1024, 2048, 2056, 2560, 3072, 4096, 2049]),
        "intermediate_size": lambda: draw.randrange(256, 16384),
        "num_attention_heads": lambda: draw.choice([8, 16, 32, 64, 31]),
        "num_key_value_heads": lambda: draw.choice([1, 2, 4, 8, 32, 3]),
        "num_hidden_layers": lambda: draw.randrange(1, 48),
        "vocab_size": lambda: draw.randrange(1000, 260_000),
    }

    def text() -> str:
        edits = {name: values[name]() for name in draw.sample(sorted(values), draw.randrange(4))}
        return json.dumps({**base, **edits}, indent=draw.choice([None, 2]))

    return [CheckItem(path=f"configs/{at:03}.json", head=text(), base=text()) for at in range(count)]


def test_two_hundred_random_pairs_are_judged_alike_every_time_and_in_mirror_image_when_swapped() -> None:
    ask = services()["AdvisorService"].Check  # type: ignore[attr-defined]
    items = random_pairs(200)
    swapped = [CheckItem(path=item.path, head=item.base, base=item.head) for item in items]
    text = policy('max_regression = "0 %"\nmin_trust = "datasheet"')
    there, again, back = (
        ask(CheckRequest(policy_toml=text, items=each, date="2026-11-28")) for each in (items, items[::-1], swapped)
    )
    assert there.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert there.unchanged_paths == back.unchanged_paths
    judged = 0
    for one, two in zip(there.comparisons, back.comparisons, strict=True):
        assert one.path == two.path
        if one.HasField("ratio") and two.HasField("ratio"):
            judged += 1
            assert one.ratio * two.ratio == pytest.approx(1, rel=1e-12)
            assert one.ratio_low * two.ratio_high == pytest.approx(1, rel=1e-9)
            worse, better = (one, two) if one.ratio > two.ratio else (two, one)
            assert better.verdict == VERDICT_PASS
            if worse.ratio > 1.0001:
                assert worse.verdict == (VERDICT_FAIL if worse.ratio_low > 1 else VERDICT_UNCERTAIN)
    assert judged > 80
