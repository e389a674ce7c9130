"""How many GEMM predictions a second, intervals included, on one core: `python scripts/bench/bench_gemm.py [CALIBRATION]`."""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import sys
import time

import numpy as np

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.table import Label, table_from_columns

ROWS = 200_000


def main() -> None:
    database = Database.packaged()
    gpu = database.gpu("h100-sxm5-80gb")
    if len(sys.argv) > 1:
        gpu = Gpu(gpu.sku, Calibration.open(sys.argv[1]))
    draw = np.random.default_rng(0)
    m, n, k = (
        np.round(2 ** draw.uniform(low, high, ROWS)).astype(np.int64) for low, high in ((0, 14), (6, 15), (6, 14))
    )
    n, k = n // 8 * 8, k // 8 * 8
    flops = 2.0 * m * n * k
    columns = {
        "m": m, "n": n, "k": k, "precision": np.full(ROWS, 3), "output_bytes": np.full(ROWS, 2.0), "flops": flops,
        "executed_flops": flops.copy(), "bytes_read": 2.0 * (m * k + n * k), "bytes_written": 2.0 * m * n,
    }  # fmt: skip
    table = table_from_columns([Label(name="gemm", layer="", part="")], 1, ROWS, columns)
    gpu.predict(table.select(np.arange(1000)))
    begin = time.perf_counter()
    times = gpu.predict(table)
    took = time.perf_counter() - begin
    print(f"{ROWS / took / 1e6:.2f} million GEMM predictions a second on one core, {int(times.refused.sum())} refused")


if __name__ == "__main__":
    main()
