"""One table in every form: layers that add up to the step, trust with its weakest link, one memory size of a GPU."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewise.client.cli import main

ROOT = Path(__file__).resolve().parents[2]
GPT2 = ("predict", str(ROOT / "examples" / "gpt2.json"), "--gpu")
Run = Callable[..., str]
STEPS = {
    "CPU-bound": ("--phase", "train", "--seq", "1024"),
    "gaps": ("--phase", "train", "--seq", "1024", "--batch", "32", "--recompute", "full"),
    "graph": ("--phase", "decode", "--context", "1024", "--batch", "8", "--mode", "graph"),
}


@pytest.fixture
def tilewise(capfd: pytest.CaptureFixture[str]) -> Run:
    """What a command prints, run in this process; it must succeed."""

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        assert not end.value.code
        return capfd.readouterr().out

    return run


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_layers_with_idle_and_issue_add_up_to_the_step_in_json_csv_and_text(
    step: tuple[str, ...], tilewise: Run
) -> None:
    answer = json.loads(tilewise(*GPT2, "h100-sxm5-80gb", *step, "--format", "json"))
    layers, whole = answer["layers"], answer["step"]["time_s"]
    assert sum(layer["time_s"] for layer in layers) == pytest.approx(whole, rel=1e-9)
    assert sum(layer["share"] for layer in layers) == pytest.approx(1, rel=1e-9)
    for layer in layers:
        for parts in ("walls", "losses"):
            assert sum(part["time_s"] for part in layer[parts]) == pytest.approx(layer["time_s"], rel=1e-6)
        assert layer["time_low_s"] <= layer["time_s"] <= layer["time_high_s"]
    rows = list(csv.DictReader(io.StringIO(tilewise(*GPT2, "h100-sxm5-80gb", *step, "--format", "csv"))))
    assert [row["layer"] for row in rows] == [*(layer["name"] for layer in layers), "step"]
    assert [float(row["time_s"]) for row in rows] == [*(layer["time_s"] for layer in layers), whole]
    table = tilewise(*GPT2, "h100-sxm5-80gb", *step).split("\n\n")[2].splitlines()
    assert [line.split()[0] for line in table] == ["layer", *(row["layer"] for row in rows)]
    assert " 100.0 %  " in table[-1]


def test_waiting_for_the_cpu_is_a_row_of_its_own(tilewise: Run) -> None:
    answer = json.loads(tilewise(*GPT2, "h100-sxm5-80gb", *STEPS["CPU-bound"], "--format", "json"))
    by_name = {layer["name"]: layer for layer in answer["layers"]}
    assert by_name["issue"]["share"] > 0.5 and by_name["issue"]["wall"] == by_name["idle"]["wall"] == "launch"
    assert by_name["idle"]["time_s"] + by_name["issue"]["time_s"] == pytest.approx(
        answer["step"]["time_s"] - answer["step"]["busy_s"]
    )


def test_the_page_and_the_picture_have_the_same_rows(tilewise: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    step = (*GPT2, "h100-sxm5-80gb", *STEPS["CPU-bound"])
    names = [layer["name"] for layer in json.loads(tilewise(*step, "--format", "json"))["layers"]]
    tilewise(*step, "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    table = page[page.index("<h2>Layers</h2>") : page.index("<h2>Operators</h2>")]
    assert re.findall(r"<tr><td>(\w+)</td>", table) == [*names, "step"]
    assert {f"layer-{at}-launch" for at in range(len(names) - 2, len(names))} <= set(re.findall(r"layer-\d+-\w+", page))


def test_trust_names_its_weakest_link(tilewise: Run) -> None:
    step = ("--phase", "decode", "--context", "1024", "--batch", "4")
    answer = json.loads(tilewise(*GPT2, "h100-sxm5-80gb", *step, "--format", "json"))["step"]
    if answer["trust"] != "measured":
        assert re.fullmatch(r"[\w ]+, \d+ % of the time|the program", answer["weakest_link"])
    first = tilewise(*GPT2, "a100-sxm-80gb", *step).splitlines()[0]
    assert re.search(r"trust: datasheet: \w+, \d+ % of the time\)$", first)
    prefill = ("--phase", "prefill", "--seq", "1024", "--batch", "8", "--stack", "transformers")
    measured = json.loads(tilewise(*GPT2, "h100-sxm5-80gb", *prefill, "--format", "json"))["step"]
    assert (measured["trust"], measured["weakest_link"]) == ("measured", "")


def test_json_of_one_gpu_and_of_several_have_one_form(tilewise: Run) -> None:
    step = STEPS["graph"]
    one, two = (
        json.loads(tilewise(*GPT2, gpus, *step, "--format", "json"))
        for gpus in ("h100-sxm5-80gb", "h100-sxm5-80gb,a100-sxm-80gb")
    )
    assert one["reports"][0] == two["reports"][0] and len(two["reports"]) == 2
    assert one["step"] == one["reports"][0]["step"]  # one GPU's keys stand at the top too


def test_a_gpu_has_one_memory_size(tilewise: Run) -> None:
    capacity = json.loads(tilewise(*GPT2, "h100-sxm5-80gb", *STEPS["graph"], "--format", "json"))["memory"][
        "capacity_bytes"
    ]
    known = {
        gpu["sku"]: gpu["memory_bytes"] for gpu in json.loads(tilewise("gpus", "list", "--format", "json"))["gpus"]
    }
    assert known["h100-sxm5-80gb"] == capacity
    assert f"{capacity / 2**30:.2f} GiB" in tilewise("gpus", "list")


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "b200-sxm-180gb", "gb300-279gb", "mi300x"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_kernel_of_another_generation_is_never_shown(gpu: str, step: tuple[str, ...], tilewise: Run) -> None:
    kernels = {row["kernel"] for row in json.loads(tilewise(*GPT2, gpu, *step, "--format", "json"))["operators"]}
    assert not any("sm90" in kernel for kernel in kernels)
