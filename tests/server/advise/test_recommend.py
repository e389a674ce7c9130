"""Advice as a whole: what it must never say, what it must say, and that several GPUs and workloads are all heard."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import Expired, InvalidInput, OutOfRange, TooLarge
from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.advice import Advice, Kind, Recommendation, Verdict
from tilewise.server.advise.asked import Asked, figures, score
from tilewise.server.advise.cause import causes
from tilewise.server.advise.recommend import Neighbourhood, Progress, recommend
from tilewise.server.advise.reshapes import candidates
from tilewise.server.advise.subject import Subject
from tilewise.server.deadline import waited_for
from tilewise.server.workload import Workload

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
MOE = {
    "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 16, "moe_intermediate_size": 1400, "shared_expert_intermediate_size": 5632, "num_experts": 60,
    "num_experts_per_tok": 4, "vocab_size": 151936,
}  # fmt: skip
TRAIN = Workload(phase="train", batch=4, sequence=2048, mode="compiled")
DECODE = Workload(phase="decode", batch=32, context=4096)
DATABASE = Database.packaged()
H100 = DATABASE.gpu("h100-sxm5-80gb")
DATASHEET = Gpu(H100.sku)


def subject(config: dict[str, object], **changed: int) -> Subject:
    return Subject(json.dumps({**config, **changed}), {})


def advice(about: Subject, *asked: Asked, near: Neighbourhood = Neighbourhood(), **options: object) -> Advice:  # noqa: B008
    *_, last = recommend(about, asked or [Asked(H100, TRAIN)], near, **options)
    assert isinstance(last, Advice)
    return last


def of(found: Advice, kind: Kind) -> list[Recommendation]:
    return [each for each in found.recommendations if each.kind is kind]


def test_advice_is_in_the_order_of_what_it_costs_whoever_follows_it() -> None:
    kinds = [each.kind for each in advice(subject(GPT2)).recommendations]
    assert kinds == sorted(kinds, key=list(Kind).index) and set(kinds) == set(Kind)


def test_the_padded_vocabulary_of_gpt2_is_sure_and_has_a_cause_and_a_price() -> None:
    eager = Asked(H100, replace(TRAIN, mode="eager"))
    found = of(advice(subject(GPT2), eager), Kind.FREE_WIN)[0]
    assert found.changes == (("vocab_size", "50257", "50304"),)
    assert found.verdict is Verdict.FASTER and found.cause == "ALIGNMENT"
    assert "lm_head" in found.message and "+36,096 parameters" in found.message


def test_a_good_shape_is_called_good() -> None:
    found = advice(subject(LLAMA), kinds=[Kind.FREE_WIN, Kind.RESHAPE])
    assert found.summary.startswith("Your shape is already good")
    assert all(each.verdict is not Verdict.FASTER for each in found.recommendations)


def test_a_gain_inside_its_interval_is_never_called_faster() -> None:
    for config in (GPT2, LLAMA, MOE):
        for each in advice(subject(config)).recommendations:
            assert each.low <= each.score <= each.high
            assert (each.verdict is Verdict.FASTER) == (each.high < 1)


def test_re_shapes_keep_parameters_heads_and_tokenizer() -> None:
    about = subject(LLAMA)
    shapes = candidates(about, about.varied, split=8, tolerance=0.01, most=100_000)
    found = figures(about, [Asked(H100, DECODE)], {name: values[:200] for name, values in shapes.items()})
    assert np.nanmax(abs(found.parameters / about.parameters - 1)) <= 0.01
    assert not np.isnan(found.time_s).any()
    assert np.all(shapes["num_attention_heads"] % 8 == 0) and np.all(shapes["intermediate_size"] % (64 * 8) == 0)
    assert np.all(shapes.get("vocab_size", np.array([128256])) >= 128256)


def test_experts_are_re_shaped_where_the_width_lies_with_them() -> None:
    about = subject(MOE)
    shapes = candidates(about, about.varied, split=1, tolerance=0.01, most=1000)
    assert len(set(shapes["moe_intermediate_size"].tolist())) > 1


def test_what_must_not_change_does_not() -> None:
    found = advice(subject(GPT2), near=Neighbourhood(keep=("vocab_size", "num_hidden_layers")))
    changed = {field for each in found.recommendations for field, _, _ in each.changes}
    assert not changed & {"vocab_size", "num_hidden_layers"}


def test_only_what_may_change_does() -> None:
    near = Neighbourhood(vary=("vocab_size",))
    found = advice(subject(GPT2), near=near, kinds=[Kind.FREE_WIN, Kind.RESHAPE])
    assert {field for each in found.recommendations for field, _, _ in each.changes} == {"vocab_size"}


def test_a_size_that_the_model_lacks_is_named_with_those_it_has() -> None:
    with pytest.raises(InvalidInput, match=r"'window' is no size.*vocab_size"):
        advice(subject(GPT2), near=Neighbourhood(vary=("window",)))


def test_of_several_gpus_the_one_that_gains_least_decides() -> None:
    asked = [Asked(H100, TRAIN), Asked(DATABASE.gpu("b200-sxm-180gb"), TRAIN)]
    both = of(advice(subject(GPT2), *asked), Kind.FREE_WIN)
    assert both
    for each in both:
        assert each.score == max(effect.time_ratio for effect in each.effects)


def test_a_mix_weighs_every_workload_by_its_tokens() -> None:
    asked = [Asked(H100, TRAIN, weight=3), Asked(H100, DECODE, weight=1)]
    ratios = np.array([[0.8], [1.0]])
    assert score(asked, ratios, np.array([1.0, 1.0]))[0] == pytest.approx(0.85)
    assert score(asked, ratios, np.array([1.0, 3.0]))[0] == pytest.approx(0.9)  # a token that takes longer weighs more


def test_energy_ranks_by_joules() -> None:
    for each in advice(subject(GPT2), energy=True, kinds=[Kind.FREE_WIN]).recommendations:
        assert each.score == each.effects[0].energy_ratio


def test_energy_without_a_power_model_is_refused() -> None:
    with pytest.raises(OutOfRange, match="power of"):
        advice(subject(GPT2), Asked(DATASHEET, TRAIN), energy=True)


def test_formats_come_with_classes_crossover_and_what_is_not_known() -> None:
    found = advice(subject(LLAMA, num_hidden_layers=4), kinds=[Kind.PRECISION])
    message = of(found, Kind.PRECISION)[0].message
    for words in ("attention projections", "mlp", "tokens a step", "lm_head", "accuracy is not predicted"):
        assert words in message or (words == "tokens a step" and "at any size" in message)
    assert any(note.startswith("nvfp4") for note in found.notes)


def test_a_small_launch_bound_model_is_not_sold_fp8() -> None:
    """G44: with few tokens casts and launches cost more than the products gain."""
    small = subject(GPT2, vocab_size=50304)
    found = advice(small, Asked(H100, replace(TRAIN, batch=1, sequence=512, mode="eager")), kinds=[Kind.PRECISION])
    assert all(each.verdict is not Verdict.FASTER for each in found.recommendations)


def test_execution_advice_begins_with_compile() -> None:
    eager = advice(subject(GPT2), Asked(H100, replace(TRAIN, mode="eager")), kinds=[Kind.EXECUTION])
    assert eager.recommendations[0].changes == (("mode", "eager", "compiled"),)


def test_a_model_without_a_time_is_refused_with_the_reason() -> None:
    wide = subject(LLAMA, num_attention_heads=4, num_key_value_heads=4)
    with pytest.raises(OutOfRange, match=r"has no time on h100-sxm5-80gb.*attention.*nearest is 256"):
        advice(wide, Asked(H100, Workload(phase="train", batch=16, sequence=2048, attention_backend="flash")))


def test_more_candidates_than_the_limit_are_refused_before_any_is_made() -> None:
    with pytest.raises(TooLarge, match="1,000,001 candidates"):
        advice(subject(GPT2), near=Neighbourhood(candidates=1_000_001))


def test_the_search_stops_when_nobody_waits() -> None:
    def nobody() -> None:
        raise Expired("nobody waits", reason="DEADLINE_EXCEEDED")

    with waited_for(nobody), pytest.raises(Expired):
        advice(subject(LLAMA))


def test_progress_counts_up_to_all_candidates() -> None:
    *news, last = recommend(subject(LLAMA), [Asked(H100, TRAIN)], Neighbourhood(tolerance=0.03))
    done = [each.done for each in news if isinstance(each, Progress)]
    assert isinstance(last, Advice) and done == sorted(done) and done[-1] == last.candidates > 0


def test_every_cause_has_a_phrase_and_an_explanation() -> None:
    from tilewise.client.cli.explain import entries

    assert set(causes()) <= set(entries()) and all(entry["phrase"] for entry in causes().values())


def test_rules_that_contradict_between_vendors_are_told() -> None:
    """Powers of two are good on an H100 and meet in the same L2 channels on an MI300X."""
    asked = [Asked(H100, TRAIN), Asked(DATABASE.gpu("mi300x"), TRAIN)]
    found = advice(subject(LLAMA, num_hidden_layers=2), *asked, kinds=[Kind.FREE_WIN])
    assert any("mi300x: hidden_size 4096" in note and "not modelled" in note for note in found.notes)
    assert any("mi300x has no calibration of these products" in note for note in found.notes)
    assert not any("h100" in note for note in found.notes)
