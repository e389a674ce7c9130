"""Published calibrations on shapes that took no part in their fit: error and interval coverage by operator and format."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from tilewise.calibration.published.rows import FAMILIES, shape_texts
from tilewise.hwdb.calibration import held_out
from tilewise.hwdb.database import Database
from tilewise.server.validate.outcome import errors
from tilewise.server.validate.validate import Validation, validate

LIMITS = {"gemm": 0.09, "attention": 0.12, "mla": 0.12, "moe": 0.18}  # above these a table is not done
COVERAGE = 0.8  # of 90 %: a few hundred points tell it to 3 %
POINTS_MIN = 20
GPUS = {
    "a100-sxm-80gb": "A100-SXM4-80GB",
    "b200-sxm-180gb": "B200-SXM",
    "h200-sxm-141gb": "H200-SXM",
    "gb200-186gb": "GB200",
}


def apart(path: Path, family: str, gpu: str) -> str:
    """The rows of one GPU whose shapes were kept apart, as a table of its own."""
    with path.open(newline="", encoding="utf-8") as stream:
        head, *body = list(csv.reader(stream))
    place = {name: at for at, name in enumerate(head)}
    mine = [row for row in body if row[place["gpu"]] == gpu and row[place["source"]].startswith("aiconfigurator")]
    shapes = shape_texts(
        family, {name: np.array([row[place[name]] for row in mine]) for name in FAMILIES[family]}, ("tp_size",)
    )
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows(row for row, kept in zip(mine, held_out(shapes.tolist()), strict=True) if kept)
    return out.getvalue()


@pytest.fixture(scope="module", params=[(sku, family) for sku in GPUS for family in LIMITS], ids="-".join)
def judged(request: pytest.FixtureRequest, shared: Path) -> tuple[str, Validation]:
    sku, family = request.param
    text = apart(shared / "measurements" / f"{family}.csv", family, GPUS[sku])
    return family, validate(text, f"{family}.csv", Database.packaged().gpu(sku), lambda _: None)


def test_held_out_rows_are_answered_within_the_limit_by_format(judged: tuple[str, Validation]) -> None:
    family, validation = judged
    (quantity,) = validation.outcome.quantities
    words = np.char.add(validation.outcome.groups["operator"], validation.outcome.groups["precision"])
    for word in sorted(set(words[quantity.judged].tolist())):
        found = errors(quantity, words == word)
        assert found is not None
        if found.points >= POINTS_MIN:
            assert found.mean < LIMITS[family], (word, found)


def test_intervals_cover_what_they_claim(judged: tuple[str, Validation]) -> None:
    _, validation = judged
    found = errors(validation.outcome.quantities[0])
    assert found is not None and found.covered is not None and found.points > 100
    assert found.covered > COVERAGE


def test_nothing_is_refused_that_was_published(judged: tuple[str, Validation]) -> None:
    _, validation = judged
    assert validation.outcome.refused.sum() == 0
