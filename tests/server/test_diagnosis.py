"""Signs are told only where the step's own figures bear them out."""

import math
import re
from collections.abc import Mapping

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.server.architecture import Architecture, read_with
from tilewise.server.step.predict import predict
from tilewise.server.step.regime import figures, regimes, signs, told
from tilewise.server.workload import Workload

SHARE = {"compute": "compute_share", "bandwidth": "bandwidth_share", "communication": "communication_share"}
SIGNS = [(regime, sign["text"]) for regime, found in regimes().items() for sign in found]


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, dict[str, float]]:
    """The regime and the figures of a step that could be."""
    walls = [draw(st.floats(0, 1)) for _ in range(4)]
    walls[draw(st.integers(0, 3))] += draw(st.sampled_from([0.1, 1, 10]))
    compute, bandwidth, communication, launch = (wall / sum(walls) for wall in walls)
    shares = {"compute": compute, "bandwidth": bandwidth, "communication": communication, "overhead": launch}
    idle = launch * draw(st.floats(0, 1))  # what kernels too short for their own wall take is launch, too
    waits = draw(st.booleans()) and idle > 0
    issue = 1.0 if waits else draw(st.floats(0, 1 - idle))
    intensity, ridge = 10 ** draw(st.floats(0, 4)), draw(st.floats(20, 1200))
    return max(shares, key=lambda name: shares[name]), {
        "busy_share": 1 - idle, "idle_share": idle, "compute_share": compute, "bandwidth_share": bandwidth,
        "communication_share": communication, "intensity": intensity, "ridge": ridge, "ridge_share": intensity / ridge,
        "gigabytes": draw(st.floats(1e-3, 1e3)), "mfu": draw(st.floats(0, 1)), "mbu": draw(st.floats(0, 1)),
        "power_share": draw(st.sampled_from([math.nan, 0.3, 1.0])), "launches": draw(st.floats(1, 1e5)),
        "mean_us": 10 ** draw(st.floats(0, 3)), "issue_ms": 50 * issue, "busy_ms": 50 * (1 - idle),
        "issue_over_busy": issue / (1 - idle) if idle < 1 else math.inf, "issue_share": issue,
    }  # fmt: skip


def contradicts(sign: str, known: Mapping[str, float]) -> bool:
    """Whether a sentence says what its own printed numbers, or the figures, deny."""
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", sign)]
    first, second = (*numbers, 0.0, 0.0)[:2]
    claims = {
        ", beyond the": lambda: first <= second,
        ", below the": lambda: first >= second,
        "this GPU needs": lambda: first >= second,
        "the CPU needs": lambda: first <= second,
        "power at its limit": lambda: not known["power_share"] > 0.95,
        "tensor pipe active": lambda: known["mfu"] < 0.4 or known["idle_share"] > 0.1,
        "idle tensor pipes": lambda: known["mfu"] > 0.2 or known["mbu"] < 0.7,
        "DRAM is idle more than half": lambda: first >= 50,
        "reads 100 %": lambda: known["busy_share"] < 0.99,
        "in proportion to tokens": lambda: known["compute_share"] < 0.8,
        "core clock changes little": lambda: known["bandwidth_share"] < 0.8,
        "gaps between short kernels": lambda: known["idle_share"] < 0.1 or known["mean_us"] > 20,
        "one CPU thread is at 100 %": lambda: known["issue_share"] < 0.95,
    }
    return any(words in sign and denied() for words, denied in claims.items())


@settings(max_examples=500, deadline=None)
@given(steps())
def test_no_sign_contradicts_its_own_numbers(step: tuple[str, dict[str, float]]) -> None:
    regime, known = step
    found = told(regime, known)
    assert found and "nan" not in " ".join(found)
    assert [sign for sign in found if contradicts(sign, known)] == []
    if regime in SHARE:
        assert f"{known[SHARE[regime]]:.0%}" in found[0]


@pytest.mark.parametrize(("regime", "text"), SIGNS)
def test_every_sign_can_be_reached(regime: str, text: str) -> None:
    def shows(step: tuple[str, dict[str, float]]) -> bool:
        return step[0] == regime and text.format(**step[1]) in told(*step)

    assert find(steps(), shows, settings=settings(max_examples=20_000, phases=[Phase.generate]))


MODELS = {
    "a training step": (Workload(phase="train", batch=8, sequence=2048), {"num_hidden_layers": 4}, "compute"),
    "a small decode": (Workload(phase="decode", batch=1, context=128, mode="eager"), {"hidden_size": 256}, "overhead"),
    "a graph's decode": (Workload(phase="decode", batch=1, context=512, mode="graph"), {}, "bandwidth"),
}


@pytest.fixture(scope="module")
def h100() -> Gpu:
    return Database.packaged().gpu("h100-sxm5-80gb")


def llama(sizes: dict[str, int]) -> Architecture:
    text = '{"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}'
    return read_with(text, sizes)


@pytest.mark.parametrize(("workload", "sizes", "regime"), MODELS.values(), ids=MODELS)
def test_signs_hold_the_figures_of_the_step(h100: Gpu, workload: Workload, sizes: dict[str, int], regime: str) -> None:
    report = predict(h100, llama(sizes), workload)
    found, known = signs(h100, report), figures(h100, report)
    assert report.step.regime == regime and len(found) > 1
    assert [sign for sign in found if contradicts(sign, known)] == []
    assert known["busy_share"] + known["idle_share"] == pytest.approx(1)


def test_a_step_far_below_its_peak_is_not_said_to_draw_all_power_or_to_keep_the_tensor_pipe_busy(h100: Gpu) -> None:
    text = '{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}'
    report = predict(h100, read_with(text, {}), Workload(phase="train", batch=8, sequence=1024))
    assert report.step.mfu is not None and report.step.mfu < 0.2 and report.step.regime == "compute"
    said = " ".join(signs(h100, report))
    assert "beyond" not in said and "limit" not in said and "tensor pipe active" not in said
