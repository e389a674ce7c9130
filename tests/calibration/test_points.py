"""Rows on disk while a calibration runs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.calibration.points import PointFile, compact

COLUMNS = ("m", "time_us")


def add(path: Path, m: int) -> list[str]:
    """Open, append one row, close; returns the column m of everything in the file."""
    with PointFile(path, COLUMNS) as file:
        file.append([{"m": m, "time_us": 2.0}])
        return [row["m"] for row in file.rows()]


def test_rows_survive_reopening(tmp_path: Path) -> None:
    add(tmp_path / "a.csv", 1)
    assert add(tmp_path / "a.csv", 2) == ["1", "2"]


@pytest.mark.parametrize("torn", ["7", "7,3.1", '"7'])
def test_a_line_torn_by_a_kill_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "a.csv"
    add(path, 1)
    with path.open("a") as stream:
        stream.write(torn)
    assert add(path, 8) == ["1", "8"]


def test_a_file_torn_within_its_head_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("m,tim")
    assert add(path, 3) == ["3"]


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    PointFile(tmp_path / "a.csv", ("m",)).close()
    with pytest.raises(ValueError, match=r"expected m, time_us"):
        PointFile(tmp_path / "a.csv", ("m", "time_us"))


@given(st.floats(1e-3, 1e9))
def test_five_digits_keep_a_time_to_five_millionths(value: float) -> None:
    assert float(compact(value)) == pytest.approx(value, rel=1e-5 * 5)


def test_nan_is_empty() -> None:
    assert compact(float("nan")) == ""
