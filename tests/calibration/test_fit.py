"""Which module fits a model."""

from pathlib import Path

import pytest

from tilewise.calibration.fit import MODELS, fit
from tilewise.hwdb.database import Database

HWDB = Database(Path(__file__).parents[2] / "hwdb")  # with the measurements, which an installed package leaves out


@pytest.mark.parametrize("model", ["launch", "power"])
def test_a_model_that_is_one_file_is_fitted_like_one_that_is_a_folder(model: str, tmp_path: Path) -> None:
    calibration = HWDB.gpu("h200-sxm-141gb").calibration
    assert calibration is not None and model in MODELS
    fitted = fit(calibration, tmp_path, only=[model])
    assert fitted.model(model).keys() >= calibration.model(model).keys()
