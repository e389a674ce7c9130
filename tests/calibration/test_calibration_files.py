"""The folder of a calibration: what it holds, and that it cannot change unseen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewise.calibration.fit import fit
from tilewise.calibration.seal import seal
from tilewise.calibration.start import finish
from tilewise.calibration.unseal import unseal
from tilewise.hwdb.calibration import Calibration, held_out
from tilewise.hwdb.compare import compare
from tilewise.hwdb.errors import InvalidInput, NotFound

Make = Callable[..., Calibration]


def test_a_sealed_run_is_found_under_the_hash_of_its_content(make: Make) -> None:
    calibration = make("a")
    assert calibration.id == f"2026-11-28-{calibration.content_sha256()[:8]}"
    assert calibration.folder.name == calibration.id


def test_the_same_points_give_the_same_id_and_others_another(make: Make) -> None:
    assert make("a").id == make("b").id
    assert make("c", scale=1.01).id != make("d").id


def test_any_changed_byte_changes_the_hash(make: Make) -> None:
    calibration = make("a")
    path = calibration.folder / "measurements" / "gemm.csv"
    path.write_text(path.read_text().replace("burst", "bursT", 1))
    assert Calibration.open(calibration.folder).content_sha256() != calibration.card["content_sha256"]


def test_columns_come_typed_with_kernel_names_and_held_out_shapes(make: Make) -> None:
    gemm = make("a", kernel="nvjet").measurements("gemm")
    assert gemm["m"].dtype == np.int64
    assert gemm["time_us"].dtype == np.float64
    assert set(gemm["kernel"]) == {"nvjet"}
    assert 0.1 < gemm["held"].mean() < 0.3


def test_shapes_that_were_only_named_are_in_the_census(make: Make) -> None:
    census = make("a").measurements("census")
    assert list(zip(census["kind"], census["m"], census["kernel"], strict=True)) == [("wgrad", 8, "other")]


def test_rows_are_sorted_by_key_so_that_a_diff_shows_what_changed(make: Make) -> None:
    gemm = make("a").measurements("gemm")
    keys = list(zip(gemm["m"], gemm["n"], gemm["k"], strict=True))
    assert keys == sorted(keys)


def test_holding_out_is_the_same_on_every_machine() -> None:
    found = held_out([f"fwd/bf16/{m}/4096/4096" for m in range(12)])
    assert found.tolist() == [held_out([f"fwd/bf16/{m}/4096/4096"])[0] for m in range(12)]
    assert np.flatnonzero(held_out([str(i) for i in range(40)])).tolist() == EXPECTED


EXPECTED = [11, 13, 14, 20, 33, 37, 39]  # fixed: a change would leak held-out shapes of committed calibrations


def test_a_family_that_was_not_measured_is_named(make: Make) -> None:
    with pytest.raises(NotFound, match="measured no attention"):
        make("a").measurements("attention")


def test_a_folder_without_card_or_with_another_schema_is_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"card.json is missing"):
        Calibration.open(tmp_path)
    folder = make("a").folder
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, "schema": 99}))
    with pytest.raises(InvalidInput, match="schema 99"):
        Calibration.open(folder)


def test_a_run_without_points_makes_no_calibration(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no points"):
        seal([tmp_path], tmp_path)


def test_another_run_brings_the_families_that_the_first_lacks(make: Make, tmp_path: Path) -> None:
    make("a")
    run, more = tmp_path / "a" / "points", tmp_path / "more"
    more.mkdir()
    about = json.loads((run / "run.json").read_text())
    (more / "run.json").write_text(json.dumps({**about, "ranks": 2, "keys": {"collectives": ["op", "bytes"]}}))
    head = "op,bytes,state,time_us,spread,clock_mhz,windows,discarded"
    (more / "collectives.csv").write_text(f"{head}\nall_reduce,1024,burst,20.5,0.01,1980,3,0\n")
    both = seal([run, more], tmp_path / "both")
    assert both.families() == ("collectives", "gemm")
    assert both.measurements("collectives")["time_us"].tolist() == [20.5]
    assert [other["ranks"] for other in both.card["others"]] == [2]


def test_runs_of_unlike_stacks_make_no_calibration(make: Make, tmp_path: Path) -> None:
    make("a")
    make("b", stack={"torch": "2.12"})
    with pytest.raises(InvalidInput, match="unlike stack"):
        seal([tmp_path / "a" / "points", tmp_path / "b" / "points"], tmp_path)


def test_a_calibration_without_its_measurements_says_where_they_are(make: Make, tmp_path: Path) -> None:
    calibration = make("a")
    shutil.rmtree(calibration.folder / "measurements")
    bare = Calibration.open(calibration.folder)
    for needs in (bare.choices, lambda: compare(bare, bare), lambda: fit(bare, tmp_path / "new")):
        with pytest.raises(NotFound, match="the repository and the source distribution hold them") as caught:
            needs()
        assert caught.value.reason == "NO_MEASUREMENTS" and "\n" not in caught.value.message
    assert not (tmp_path / "new").exists()


def test_a_calibration_can_be_sealed_again_with_a_later_run_of_another_card(make: Make, tmp_path: Path) -> None:
    first, again = make("a", kernel="nvjet"), tmp_path / "again"
    points = unseal(first, tmp_path / "unsealed")
    same = seal([points], again)
    for name in ("gemm.csv", "kernels.csv", "failures.csv"):
        assert (same.folder / "measurements" / name).read_text() == (first.folder / "measurements" / name).read_text()
    gpu = {**first.card["gpu"], "serial": "another"}
    both = finish([first.folder, make("b", scale=1.02, gpu=gpu).folder], tmp_path / "both", fit_models=False)
    ratio = both.measurements("gemm")["time_us"] / first.measurements("gemm")["time_us"]
    assert np.median(ratio) == pytest.approx(1.01, abs=1e-3)
    assert [other["gpu"]["serial"] for other in both.card["others"]] == ["another"]
    thrice = finish([both.folder, tmp_path / "a" / "points"], tmp_path / "thrice", fit_models=False)
    assert len(thrice.card["others"]) == 2
