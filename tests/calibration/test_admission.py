"""What a server checks before a calibration may answer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewise.calibration.seal import seal
from tilewise.hwdb.admission import check, publishable
from tilewise.hwdb.calibration import Calibration, identify
from tilewise.hwdb.database import Database

Make = Callable[..., Calibration]
ROOT = Path(__file__).resolve().parents[2]
SKU = Database.packaged().sku("h100-sxm5-80gb")


def codes(calibration: Calibration, errors: bool = True) -> set[str]:
    return {finding.code for finding in check(calibration, SKU) if finding.error is errors}


def edited(calibration: Calibration, old: str, new: str, name: str = "measurements/gemm.csv") -> Calibration:
    """The calibration with a text replaced and its hash set right again."""
    path = calibration.folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    return identify(calibration.folder)


def test_a_clean_calibration_may_be_published(make: Make) -> None:
    findings = check(make("a"), SKU)
    assert publishable(findings)
    assert {finding.code for finding in findings} == {"NO_HELD_OUT_ERROR"}


def test_every_packaged_measured_calibration_is_one_that_a_server_would_take() -> None:
    database = Database(ROOT / "hwdb")  # an installed package has no measurements
    measured = [database.gpu(sku) for sku in database.skus() if database.calibrations(sku)]
    found = {gpu.sku.name: [str(each.code) for each in check(gpu.calibration, gpu.sku) if each.error]
             for gpu in measured if isinstance(gpu.calibration, Calibration) and gpu.calibration.families()}  # fmt: skip
    assert found == {"h100-sxm5-80gb": [], "h200-sxm-141gb": []}


def test_a_file_changed_after_sealing_is_found(make: Make) -> None:
    calibration = make("a")
    path = calibration.folder / "measurements" / "gemm.csv"
    path.write_text(path.read_text().replace("1980", "1981", 1))
    assert codes(Calibration.open(calibration.folder)) == {"BAD_HASH"}


def test_a_non_production_calibration_is_never_published(make: Make) -> None:
    assert codes(make("a", production=False)) == {"NOT_PRODUCTION"}


@pytest.mark.parametrize(("spread", "found"), [(0.4, set()), (7.2, {"TOO_NOISY"})])
def test_collectives_that_repeat_badly_are_refused(make: Make, tmp_path: Path, spread: float, found: set[str]) -> None:
    kept = make("a")
    run = tmp_path / "more"
    run.mkdir()
    about = json.loads((tmp_path / "a" / "points" / "run.json").read_text())
    (run / "run.json").write_text(
        json.dumps({**about, "ranks": 2, "keys": {"collectives": ["op", "ranks", "nodes", "bytes"]}})
    )
    (run / "names.csv").write_text("family,key,kernel\n")
    (run / "failures.csv").write_text("family,key,reason\n")
    head = "op,ranks,nodes,bytes,state,time_us,spread,clock_mhz,windows,discarded,kernel"
    (run / "collectives.csv").write_text(f"{head}\nall_reduce,2,1,1024,burst,20.5,{spread},1980,,,\n")
    both = seal([tmp_path / "a" / "points", run], tmp_path / "both")
    assert both.families() == ("collectives", "gemm") != kept.families()
    assert codes(both) == found


def test_a_gemm_above_the_peak_is_found_with_its_row(make: Make) -> None:
    findings = check(make("a", scale=0.5), SKU)
    assert {finding.code for finding in findings if finding.error} == {"ABOVE_PEAK"}
    assert findings[0].row > 0


def test_noise_beyond_the_limit_is_found(make: Make) -> None:
    assert codes(make("a", spread=0.2)) == {"TOO_NOISY"}


def test_another_sku_is_found(make: Make) -> None:
    assert "WRONG_SKU" in codes(make("a", sku="h200-sxm-141gb"))


@pytest.mark.parametrize("key", ["stack", "gpu"])
def test_an_incomplete_card_is_found(make: Make, key: str) -> None:
    assert codes(make("a", **{key: {}})) == {"CARD_INCOMPLETE"}


def test_a_point_that_is_there_twice_is_found(make: Make) -> None:
    calibration = make("a")
    path = calibration.folder / "measurements" / "gemm.csv"
    path.write_text(path.read_text() + path.read_text().splitlines()[1] + "\n")
    assert codes(identify(calibration.folder)) == {"DUPLICATE_POINT"}


@pytest.mark.parametrize("time", ["", "-1", "0", "nan"])
def test_a_row_without_a_positive_time_is_found(make: Make, time: str) -> None:
    calibration = make("a")
    first = (calibration.folder / "measurements" / "gemm.csv").read_text().splitlines()[1].split(",")
    broken = [*first[:7], time, *first[8:]]
    assert codes(edited(calibration, ",".join(first), ",".join(broken))) == {"BAD_TIME"}


@pytest.mark.parametrize("content", ["", "m,n\n1\n", "\x00\x01", "kind,dtype\nfwd,bf16\n"])
def test_a_broken_table_is_a_finding_and_no_crash(make: Make, content: str) -> None:
    calibration = make("a")
    (calibration.folder / "measurements" / "gemm.csv").write_text(content)
    assert "BAD_SCHEMA" in codes(identify(calibration.folder))


def test_a_file_that_does_not_belong_is_found(make: Make) -> None:
    calibration = make("a")
    (calibration.folder / "run.sh").write_text("echo\n")
    assert codes(identify(calibration.folder)) == {"BAD_SCHEMA"}


def test_a_card_of_nonsense_is_a_finding_and_no_crash(make: Make) -> None:
    folder: Path = make("a").folder
    card = json.loads((folder / "card.json").read_text())
    for broken in ({**card, "families": 3}, {**card, "stack": "x"}, {**card, "families": {"gemm": {}}}):
        (folder / "card.json").write_text(json.dumps(broken))
        assert not publishable(check(Calibration.open(folder), SKU))
