"""rank: many GPUs in one call, the precision each should use, places that intervals support, where the order changes."""

import json
from pathlib import Path

import pytest

from tilewise.client.cli import main
from tilewise.client.ranking import Entry, order, swaps

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "llama-3-8b.json"
PREFILL = ("--phase", "prefill", "--seq", "2048")


def entry(
    gpu: str, rate: float, spread: float = 0.1, precision: str = "bf16", fits: bool = True, batch: int = 1
) -> Entry:
    return Entry(batch=batch, gpu=gpu, precision=precision, tokens_per_s=rate, tokens_per_s_low=rate * (1 - spread), tokens_per_s_high=rate * (1 + spread),
                 power_w=1000.0, trust="published", calibration="", fits=fits)  # fmt: skip


def ranked(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["rank", str(EXAMPLE), *arguments])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


def test_overlapping_intervals_share_a_place() -> None:
    places = {one.gpu: one.place for one in order([entry("a", 100), entry("b", 95), entry("c", 50), entry("d", 10)])}
    assert places == {"a": 1, "b": 1, "c": 3, "d": 4}


def test_a_gpu_stands_with_its_fastest_precision_that_fits() -> None:
    found = [
        entry("a", 100, precision="bf16"),
        entry("a", 300, precision="nvfp4"),
        entry("a", 900, precision="fp8", fits=False),
    ]
    assert [(one.precision, one.place) for one in order(found)] == [("nvfp4", 1)]


def test_a_gpu_that_the_model_does_not_fit_comes_last() -> None:
    assert [one.gpu for one in order([entry("small", 900, fits=False), entry("large", 100)])] == ["large", "small"]


def test_only_known_changes_of_order_are_called_one() -> None:
    before = order([entry("a", 100), entry("b", 50), entry("c", 95)])
    after = order([entry("a", 50), entry("b", 100), entry("c", 52)])
    assert set(swaps(before, after)) == {("a", "b"), ("c", "b")}


def test_all_calibrated_gpus_are_ranked_in_one_call(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = ranked(capfd, *PREFILL, "--format", "json", "--batches", "1,8")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert [one["batch"] for one in answer["rankings"]] == [1, 8]
    for ranking in answer["rankings"]:
        gpus = {one["gpu"]: one for one in ranking["gpus"]}
        assert {"h100-sxm5-80gb", "b200-sxm-180gb", "mi300x", "a100-sxm-80gb"} <= set(gpus)
        assert all(one["tokens_per_s_low"] <= one["tokens_per_s"] <= one["tokens_per_s_high"] for one in gpus.values())
        assert all(
            one["tokens_per_j_at_tdp"] == pytest.approx(one["tokens_per_s"] / one["power_w"]) for one in gpus.values()
        )
        assert gpus["a100-sxm-80gb"]["precision"] == "bf16"
        assert gpus["h100-sxm5-80gb"]["calibration"]
    asked = {(one["gpu"], one["precision"]) for one in answer["all"]}
    assert ("b200-sxm-180gb", "nvfp4") in asked and ("h100-sxm5-80gb", "nvfp4") not in asked


def test_a_ranking_as_text_names_precision_interval_and_trust(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ranked(capfd, *PREFILL, "--gpu", "h100-sxm5-80gb,b200", "--precisions", "bf16")
    assert code == 0
    assert (
        out.startswith("batch 1, stack vllm\n")
        and "b200-sxm-180gb" in out
        and "published" in out
        and "tokens/J at TDP" in out
        and "bf16" in out
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--precisions", "fp7"), "precision 'fp7' is not known: allowed are fp64"),
        (("--batches", "0,x"), "batch '0' is no whole number from 1 up"),
        (("--gpu", "b2000"), "nearest is b200-sxm-180gb"),
    ],
)
def test_bad_input_is_one_line(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str) -> None:
    code, out, err = ranked(capfd, *PREFILL, *arguments)
    assert code == 2 and out == ""
    assert says in err
