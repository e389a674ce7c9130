"""SKUs of the same dies: what was published of one is a share of its datasheet for the other, and says whose it is."""

import pytest

from tilewise.hwdb import dies
from tilewise.hwdb.database import Database
from tilewise.hwdb.times import Trust

DATABASE = Database.packaged()
TWINS = [(name, there) for name in DATABASE.skus() if (there := dies.twin(DATABASE.sku(name)))]


@pytest.mark.parametrize(("name", "there"), TWINS)
def test_a_ceiling_that_only_the_twin_has_is_the_same_share_of_the_datasheet(name: str, there: str) -> None:
    sku, twin = DATABASE.sku(name), DATABASE.sku(there)
    assert sku.ceilings.keys() >= twin.ceilings.keys()
    carried = [key for key, one in sku.ceilings.items() if one.trust is Trust.DATASHEET]
    assert carried and all(sku.ceilings[key].source.startswith(f"as the {there}: ") for key in carried)
    for key in carried:
        if key == "gemm_bf16_flops_per_s":
            shares = [one.ceilings[key].value / float(one.peaks["bf16"].value) for one in (sku, twin)]
            assert shares[0] == pytest.approx(shares[1])


@pytest.mark.parametrize(("name", "there"), TWINS)
def test_the_calibration_that_answers_is_named_and_stays_the_twins(name: str, there: str) -> None:
    gpu = DATABASE.gpu(name)
    assert gpu.calibration is None and gpu.answers_by == DATABASE.gpu(there).answers_by
    assert gpu.launch("eager").trust is Trust.DATASHEET
    low, value, high = gpu.launch("eager").issue_s
    assert (low, high) != (value, value) and value == DATABASE.gpu(there).launch("eager").issue_s[1]
