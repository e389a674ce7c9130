"""What one kernel of a framework operation leaves in L2 for the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.memory import fitted as memory
from tilewise.hwdb.table import OperatorTable
from tilewise.hwdb.times import State
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.sequences import NORMS, Launches, launches

HWDB = Database(Path(__file__).parents[3] / "hwdb")  # with the measurements, which an installed package leaves out


def table_of(sequence: tuple[Launches, ...], rows: Number, cols: Number) -> OperatorTable:
    e = Emitter()
    with e.scope(layer="x", part="norm"):
        e.launches("x", sequence, rows, cols, 2)
    return e.table()


def test_a_kernel_reads_what_the_one_before_wrote_and_the_first_reads_from_memory() -> None:
    sequence = tuple(launches("cast a>f, reduce f>r, mul.row fr>f"))
    found = table_of(sequence, 64, 1024)
    assert found.recent_bytes.tolist() == [0, 4 * 64 * 1024, 4 * 64]


def test_a_kernel_that_is_launched_again_reads_what_it_wrote() -> None:
    found = table_of(tuple(launches("3 pointwise a>a")), 64, 1024)
    assert found.recent_bytes.tolist() == found.bytes_written.tolist()


@pytest.mark.parametrize("sku", ["h100-sxm5-80gb", "h200-sxm-141gb"])
def test_the_kernels_of_an_eager_norm_together_take_as_long_as_was_measured(sku: str) -> None:
    """Calibrations time the eight kernels in a row as well. Without what they hand over their sum is 9 % off."""
    gpu = HWDB.gpu(sku)
    assert gpu.calibration
    points = gpu.calibration.measurements("norms")
    use = (points["op"] == "rmsnorm") & (points["variant"] == "eager")
    use &= (points["state"] == "burst") & (points["residency"] == "reused")
    points = {name: values[use] for name, values in points.items()}
    rows, cols = (points[name].astype(float) for name in ("rows", "cols"))
    found = table_of(NORMS["rms"].forward, rows, cols)
    times = memory.predict(found, gpu.calibration.model("memory"), gpu.sku, State.BURST).time_s * found.count
    together = np.bincount(found.shape, times)
    error = np.log(together / memory.measured_s({"norms": points}))
    assert np.abs(error).mean() < 0.04
