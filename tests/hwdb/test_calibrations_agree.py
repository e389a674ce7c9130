"""Two calibrations of one SKU tell the same of what both know."""

from typing import Any

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kinds import KINDS
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import OP_CODES, Kind, Label, OperatorTable, Phase, table_from_columns
from tilewise.hwdb.times import Trust

DATABASE = Database.packaged()
PAIRS = [sku for sku in DATABASE.skus() if len(DATABASE.calibrations(sku)) > 1]
FACTOR = 2.0


def rows(kind: Kind, **columns: Any) -> OperatorTable:
    length = max(np.size(values) for values in columns.values())
    columns |= {"kind": int(kind), "precision": columns.get("precision", int(Precision.BF16))}
    full = {name: np.broadcast_to(values, length).copy() for name, values in columns.items()}
    return table_from_columns([Label(name="x", layer="", part="")], 1, length, full)


def products() -> OperatorTable:
    m, n, k = (np.ravel(size) for size in np.meshgrid([16, 256, 4096, 16384], [1024, 4096, 14336], [1024, 4096, 14336]))
    return rows(
        Kind.GEMM, m=m.astype(float), n=n, k=k, output_bytes=2.0, flops=2.0 * m * n * k, bytes_read=2.0 * k * (m + n),
        bytes_written=2.0 * m * n,
    )  # fmt: skip


def prefills() -> OperatorTable:
    """Attention above all launches, where an engine's kernel and torch's do the same."""
    keys = np.array([2048, 4096, 8192, 16384])
    work = 2.0 * 32 * 256 * keys.astype(float) ** 2 / 2
    return rows(
        Kind.ATTENTION, phase=int(Phase.FORWARD), batch=1, heads=32, kv_heads=8, head_dim=128, head_dim_v=128, seq_q=keys,
        seq_kv=keys, causal=1, flops=work, special=work / 512,
    )  # fmt: skip


def messages() -> OperatorTable:
    """Collectives within one board."""
    size, ranks = (np.ravel(each) for each in np.meshgrid(2.0 ** np.arange(10, 31, 4), [2, 4, 8]))
    return rows(Kind.COLLECTIVE, op=OP_CODES["all_reduce"], message_bytes=size, ranks=ranks)


@pytest.mark.parametrize("sku", PAIRS)
@pytest.mark.parametrize("table", [products(), prefills(), messages()], ids=["products", "prefills", "messages"])
def test_two_calibrations_of_one_sku_lie_within_a_factor_of_two_of_each_other(sku: str, table: OperatorTable) -> None:
    calibrations = [DATABASE.calibration(sku, id) for id in DATABASE.calibrations(sku)]
    family = KINDS[Kind(table.kind[0])].name
    found = [Gpu(DATABASE.sku(sku), each).predict(table) for each in calibrations if each.model(family)]
    known = np.logical_and.reduce([times.trust > Trust.DATASHEET for times in found])
    assert known.any()
    for one in found:
        for other in found:
            assert (one.time_s <= FACTOR * other.time_s)[known].all()


@pytest.mark.parametrize("sku", PAIRS)
@pytest.mark.parametrize("ranks", [2, 8])
def test_collectives_are_those_that_were_published_unless_a_calibration_timed_its_own(sku: str, ranks: int) -> None:
    gpu = DATABASE.gpu(sku)
    table = rows(Kind.COLLECTIVE, op=OP_CODES["all_reduce"], message_bytes=np.array([2.0**20]), ranks=ranks)
    times = gpu.predict(table)
    own = bool(gpu.calibration and gpu.calibration.model("collective"))
    assert times.trust[0] == (Trust.MEASURED if own else Trust.PUBLISHED) and times.time_s[0] < 1e-4
