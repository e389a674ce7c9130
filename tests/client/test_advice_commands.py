"""tilewise recommend and tilewise sweep: what they print, draw and refuse."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewise.client.cli import main

ROOT = Path(__file__).resolve().parents[2]
GPT2 = str(ROOT / "examples" / "gpt2.json")
TRAIN = ("--gpu", "h100-sxm5-80gb", "--phase", "train", "--batch", "8", "--seq", "1024", "--mode", "eager")
DECODE = ("--gpu", "h100-sxm5-80gb", "--phase", "decode", "--context", "1024")


def run(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(command))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_advice_is_told_with_verdict_cause_and_price(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "recommend", GPT2, *TRAIN)
    assert code == 0
    assert re.search(r"vocab_size 50257 -> 50304 +-\d+\.\d % .* faster\n +ALIGNMENT: lm_head", out)
    assert "not predicted" in out and out.rstrip().split("\n")[-1].startswith("Change vocab_size")
    assert "cannot tell" in run(capsys, "recommend", GPT2, *DECODE)[1]


def test_json_holds_everything_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "recommend", GPT2, *TRAIN, "--kind", "free_win", "--format", "json")
    answer = json.loads(out)
    first = answer["recommendations"][0]
    assert (first["kind"], first["verdict"], first["cause"]) == ("free_win", "faster", "ALIGNMENT")
    assert first["changes"] == [{"field": "vocab_size", "from": "50257", "to": "50304"}]
    effect = first["effects"][0]
    assert effect["time_ratio_low"] <= effect["time_ratio"] <= effect["time_ratio_high"] < 1
    assert answer["baseline"][0]["step"]["time_s"] > effect["time_s"]


def test_a_mix_shows_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    also = "phase=decode,batch=32,context=1024,weight=0.001"
    _, out, _ = run(capsys, "recommend", GPT2, *TRAIN, "--also", also, "--kind", "free_win")
    assert "weight 0.001" in out and "h100-sxm5-80gb, workload 2" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--also", "phase=sleep"), "phase 'sleep' is not known: allowed are train, prefill, decode"),
        (("--also", "speed=3"), "field 'speed' is not known: allowed are phase, batch"),
        (("--keep", "window"), "'window' is no size of this model"),
        (("--max-parameter-change", "2"), "must lie between 0 and 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "recommend", GPT2, *TRAIN, *options)
    assert code == 2 and not out and message in err and err.startswith("error: ")


def test_a_sweep_lists_its_points_and_cliffs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "sweep", GPT2, *TRAIN, "--vary", "vocab_size=50302:50306")
    assert code == 0 and len(re.findall(r"^ +503\d\d ", out, re.MULTILINE)) == 5
    assert "50304 -> 50305" in out and "ALIGNMENT" in out


def test_two_fields_make_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        capsys, "sweep", GPT2, *DECODE, "--vary", "batch=1,64", "--vary", "num_hidden_layers=2,4", "--show", "mfu"
    )
    assert re.search(r"MFU: batch \\ num_hidden_layers +2 +4\n", out) and re.search(
        r"^ +64 +\d+\.\d % +\d+\.\d %$", out, re.MULTILINE
    )


def test_many_points_are_told_in_a_screenful(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "sweep", GPT2, *DECODE, "--vary", "batch=1:500")
    assert "of 500 points are listed" in out and len(out.splitlines()) < 90


def test_a_refused_point_is_told_once_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "sweep", GPT2, *TRAIN, "--vary", "num_attention_heads=12,13,14")
    assert code == 0 and "refused: " in out and "num_attention_heads 13" in out


def test_a_bad_range_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "sweep", GPT2, *TRAIN, "--vary", "vocab_size=a:b")
    assert code == 2 and "FIELD=FIRST:LAST[:STEP]" in err


@pytest.mark.parametrize(
    "axes", [("vocab_size=50302:50306",), ("batch=1,2", "num_hidden_layers=2,4")], ids=["line", "map"]
)
def test_every_point_is_a_mark_that_the_page_tells(
    axes: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    picture, page = tmp_path / "sweep.svg", tmp_path / "sweep.html"
    vary = [word for axis in axes for word in ("--vary", axis)]
    work = TRAIN if len(axes) == 1 else DECODE
    run(capsys, "sweep", GPT2, *work, *vary, "--plot", str(picture), "--html", str(page))
    points = 5 if len(axes) == 1 else 4
    ids = {element.get("id") for element in ElementTree.fromstring(picture.read_text()).iter()}
    assert ids >= {f"point-{at}" for at in range(points)}
    text = page.read_text()
    hints = json.loads(re.findall(r'<script[^>]*id="hints"[^>]*>(.*?)</script>', text)[0])
    assert len(hints) == points and all(f'data-hint="{name}"' in text for name in hints)
    assert "tokens/s, MFU" in hints["0-point-0"]


def test_a_picture_of_an_unknown_ending_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "sweep", GPT2, *DECODE, "--vary", "batch=1,2", "--plot", str(tmp_path / "sweep.bmp"))
    assert code == 2 and ".png" in err


LLAMA = str(ROOT / "examples" / "llama-3-8b.json")
SPLIT = ("--gpu", "h100-sxm5-80gb", "--phase", "prefill", "--seq", "2048", "--tp", "4", "--mode", "graph")


def test_cost_and_time_are_told_apart_where_the_number_of_gpus_changes(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "recommend", LLAMA, *SPLIT, "--kind", "execution")
    assert "GPU-s a token" in out and re.search(r"tensor_parallel 4 -> 2 .* ms -> .* ms +cheaper\n", out)
    assert re.search(r"fewer GPU-seconds a token \(.*\), but a step takes \d+% longer\.$", out.rstrip())
    _, out, _ = run(capsys, "recommend", LLAMA, *SPLIT, "--kind", "execution", "--format", "json")
    (found,) = (each for each in json.loads(out)["recommendations"] if each["changes"][0]["field"] == "tensor_parallel")
    (effect,) = found["effects"]
    assert effect["time_ratio"] < 1 < effect["step_time_ratio"] == pytest.approx(2 * effect["time_ratio"])


@pytest.mark.parametrize("gigabytes", ["8.5", "17", ""])
def test_nothing_is_advised_that_fills_more_than_it_may(gigabytes: str, capsys: pytest.CaptureFixture[str]) -> None:
    step = ("--gpu", "h100-sxm5-80gb", "--phase", "decode", "--batch", "512", "--context", "1024", "--mode", "graph")
    limit = ("--max-memory", gigabytes) if gigabytes else ()
    _, out, _ = run(capsys, "recommend", LLAMA, *step, *limit, "--format", "json")
    answer = json.loads(out)
    memory = answer["baseline"][0]["memory"]
    room = float(gigabytes) * 1e9 if gigabytes else memory["capacity_bytes"] - memory["reserve_bytes"]
    for found in answer["recommendations"]:
        after = memory["total_bytes"] + found["memory_bytes_change"]
        assert after <= max(room, memory["total_bytes"]), found["changes"]


def test_a_gain_that_is_no_advice_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for model, step in ((GPT2, TRAIN), (LLAMA, SPLIT), (GPT2, DECODE)):
        _, out, _ = run(capsys, "recommend", model, *step, "--format", "json")
        for found in json.loads(out)["recommendations"]:
            assert found["kind"] == "precision" or found["total_ratio"] < 0.99


def test_a_mix_shows_its_total(capsys: pytest.CaptureFixture[str]) -> None:
    mix = ("recommend", GPT2, *TRAIN, "--also", "phase=prefill,sequence=1024", "--kind", "free_win")
    _, out, _ = run(capsys, *mix)
    total = re.search(r"\n +in all +-(\d+\.\d) %", out)
    assert total is not None and out.rstrip().split(": ")[-1].startswith(f"{total[1]}% less time a token")
