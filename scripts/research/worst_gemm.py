"""The GEMM points kept apart that the model misses most, with the kernel that ran beside the one it expected.

python scripts/research/worst_gemm.py [--gpu SKU] [--count 10]      (prints a table in markdown)
"""

from __future__ import annotations

import argparse

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.gemm import fitted as gemm
from tilewise.hwdb.times import State


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h100-sxm5-80gb")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()
    gpu = Database.packaged().gpu(options.gpu)
    assert gpu.calibration is not None
    points = gpu.calibration.measurements("gemm")
    apart = points["held"] & (points["state"] == "burst") & (points["sets"] <= gemm.SETS)
    points = {name: values[apart] for name, values in points.items()}
    measured = gemm.measured_s({"gemm": points})
    times = gemm.predict(gemm.table({"gemm": points}), gpu.calibration.model("gemm"), gpu.sku, State.BURST)
    error = np.where(times.refused, 0.0, np.log(times.time_s / measured))
    print(
        "| product (m x n x k) | measured, us | predicted, us | interval | ran | expected |\n|---|---|---|---|---|---|"
    )
    for row in np.argsort(-np.abs(error))[: options.count]:
        shape = (
            f"{points['kind'][row]} {points['dtype'][row]} {points['m'][row]} x {points['n'][row]} x {points['k'][row]}"
        )
        bounds = f"{times.low_s[row] * 1e6:.1f}-{times.high_s[row] * 1e6:.1f}"
        print(f"| {shape} | {measured[row] * 1e6:.1f} | {times.time_s[row] * 1e6:.1f} | {bounds} "
              f"| {str(points['kernel'][row])[:60]} | {times.kernel_names[times.kernel[row]]} |")  # fmt: skip


if __name__ == "__main__":
    main()
