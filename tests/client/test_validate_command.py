"""`tilewise validate` as a person and a CI job meet it."""

import csv
import io
import json
from pathlib import Path

import pytest

from tilewise.client.cli import main

GPU = ("--gpu", "h100-sxm5-80gb")
GEMMS = """model,kind,m,n,k,dtype,time_us,time_us_sustained
"a, b",fwd,4096,4096,4096,bf16,220.5,250
x,wgrad,4096,4096,4096,bf16,250,
x,fwd,512,513,511,bf16,12,
x,fwd,512,512,512,bf9,12,
"""
CONFIG = """{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "vocab_size": 999}"""


def tilewise(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


@pytest.fixture
def gemms(tmp_path: Path) -> Path:
    (tmp_path / "gemm.csv").write_text(GEMMS)
    return tmp_path / "gemm.csv"


def test_text_says_how_many_rows_count_and_how_far_off_they_are(gemms: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = tilewise(capfd, "validate", gemms, *GPU)
    assert (code, err) == (0, "")
    assert "4 rows: 3 judged, 0 refused, 1 skipped" in out
    assert "1 x number format bf9 is not modelled" in out
    assert all(word in out for word in ("mean", "median", "p90", "bias", "covered", "width", "alignment", "wgrad"))


def test_json_has_the_same_figures_with_the_worst_rows(gemms: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = tilewise(capfd, "validate", gemms, *GPU, "--format", "json")
    (table,) = json.loads(out)["tables"]
    assert (table["format"], table["judged"], table["skipped"]) == ("gemm", 3, 1)
    time, sustained = table["quantities"]
    assert (time["errors"]["points"], sustained["errors"]["points"]) == (3, 1)
    assert set(time["errors"]) == {"points", "mean", "median", "p90", "bias", "covered", "width"}
    assert sum(each["points"] for each in time["groups"]["layout"].values()) == 3
    off = [abs(each["ratio"] - 1) for each in time["worst"]]
    assert off == sorted(off, reverse=True) and time["worst"][0]["row"]["kind"]


def test_rows_come_back_as_they_were_with_predictions_or_a_reason(
    gemms: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, _ = tilewise(capfd, "validate", gemms, *GPU, "--rows", tmp_path / "rows.csv")
    assert code == 0
    before = list(csv.DictReader(io.StringIO(GEMMS)))
    after = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert [{name: row[name] for name in before[0]} for row in after] == before
    for row in after[:3]:
        assert 0 < float(row["low_us"]) < float(row["predicted_us"]) < float(row["high_us"])
        assert row["wall"] in ("compute", "memory", "launch") and row["reason"] == ""
    assert float(after[0]["predicted_sustained_us"]) > float(after[0]["predicted_us"])
    assert after[1]["predicted_sustained_us"] == ""
    assert [after[3][name] for name in ("predicted_us", "low_us", "high_us", "wall")] == [""] * 4 and "bf9" in after[3][
        "reason"
    ]


def test_rows_written_back_are_a_table_again_and_perfect_predictions_have_no_error(
    gemms: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    tilewise(capfd, "validate", gemms, *GPU, "--rows", rows)
    found = list(csv.DictReader(io.StringIO(rows.read_text())))
    again = "m,n,k,dtype,kind,time_us\n" + "".join(
        f"{row['m']},{row['n']},{row['k']},{row['dtype']},{row['kind']},{row['predicted_us']}\n" for row in found[:3]
    )
    (tmp_path / "perfect.csv").write_text(again)
    code, out, _ = tilewise(
        capfd, "validate", tmp_path / "perfect.csv", *GPU, "--format", "json", "--fail-above", "0.1%"
    )
    errors = json.loads(out)["tables"][0]["quantities"][0]["errors"]
    assert code == 0 and errors["mean"] < 1e-4 and errors["covered"] == 1


def test_whole_models_find_configs_beside_the_table_and_write_milliseconds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "tiny.json").write_text(CONFIG)
    table = tmp_path / "steps.csv"
    table.write_text("model,mode,phase,b,s,layers,wall_ms,busy_ms,kernels\ntiny,eager,train,1,512,2,5,2,300\n")
    code, _, err = tilewise(capfd, "validate", table, *GPU, "--rows", tmp_path / "rows.csv")
    assert (code, err) == (0, "")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text()))
    assert 0 < float(row["predicted_busy_ms"]) <= float(row["predicted_wall_ms"])
    assert float(row["predicted_us"]) == pytest.approx(1e3 * float(row["predicted_wall_ms"]), rel=1e-4)
    code, _, err = tilewise(capfd, "validate", table, *GPU, "--configs", tmp_path)
    assert code == 2 and "--configs must hold tiny.json" in err


def test_memory_tables_come_back_in_mib(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.json").write_text(CONFIG)
    table = tmp_path / "memory.csv"
    table.write_text("model,layers,b,s,recompute,peak_step_MiB\ntiny,4,1,512,0,200\n")
    code, _, _ = tilewise(capfd, "validate", table, *GPU, "--configs", tmp_path, "--rows", tmp_path / "rows.csv")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text()))
    assert code == 0 and float(row["predicted_mib"]) > 20


@pytest.mark.parametrize("name", ["picture.png", "picture.svg"])
def test_a_picture_is_drawn(gemms: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    code, _, err = tilewise(capfd, "validate", gemms, *GPU, "--plot", tmp_path / name)
    assert (code, err) == (0, "")
    start = (tmp_path / name).read_bytes()[:200]
    assert start.startswith(b"\x89PNG") or b"<?xml" in start


def test_too_large_an_error_exits_with_1(gemms: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = tilewise(capfd, "validate", gemms, *GPU, "--fail-above", "0.001%")
    assert code == 1 and "3 judged" in out and "exceeds 0.00%" in err
    assert tilewise(capfd, "validate", gemms, *GPU, "--fail-above", "900%")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpu", "h100"), "does not say which board"),
        ((*GPU, "--server", "localhost:1"), "runs in this process alone"),
        ((*GPU, "--fail-above", "much"), "write 5% or 0.05"),
        ((*GPU, "--plot", "picture.bmp"), "must end in one of .png"),
        ((*GPU, "--calibration", "none-such"), "no calibration 'none-such'"),
    ],
)
def test_bad_usage_is_one_line_and_exits_with_2(
    gemms: Path, arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = tilewise(capfd, "validate", gemms, *arguments)
    assert code == 2 and message in err and err.startswith("error: ")


def test_a_missing_or_unknown_table_exits_with_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert tilewise(capfd, "validate", tmp_path / "no.csv", *GPU)[0] == 2
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    code, _, err = tilewise(capfd, "validate", tmp_path / "odd.csv", *GPU)
    assert code == 2 and "columns of no table known here" in err
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    assert tilewise(capfd, "validate", tmp_path / "bytes.csv", *GPU)[0] == 2


def test_a_table_of_which_no_row_can_be_judged_exits_with_3(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.csv").write_text("gpu,dtype,m,n,k,time_us\nA100-SXM4-80GB,bfloat16,512,512,512,9\n")
    code, out, err = tilewise(capfd, "validate", tmp_path / "other.csv", *GPU)
    assert code == 3 and "no row could be judged" in err
    assert "1 x measured on another GPU: A100-SXM4-80GB" in out
