"""How far batched products in 16 bit, which were measured, lie from what single ones say of them; fp32 has single ones alone.

python scripts/research/judge_batches.py      (prints a line a GPU and range of rows: the constants of hwdb/kernels/gemm/fitted.py)
"""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.gemm import fitted as gemm
from tilewise.hwdb.table import Floats
from tilewise.hwdb.times import State

GPUS = ("h100-sxm5-80gb", "h200-sxm-141gb")


def main() -> None:
    found = [errors(sku) for sku in GPUS]
    for name, (rows, error) in zip((*GPUS, "both"), [*found, joined(found)], strict=True):
        for words, mine in (
            (f"from {gemm.STACKED_ROWS} rows on", rows >= gemm.STACKED_ROWS),
            ("below", rows < gemm.STACKED_ROWS),
        ):
            low, high = np.expm1(np.quantile(-error[mine], (0.05, 0.95)))
            mean, bias = np.abs(np.expm1(error[mine])).mean(), np.expm1(error[mine]).mean()
            print(
                f"{name} {words}: {mine.sum()} points, mean {mean:.1%}, bias {bias:+.1%}, measured {low:+.0%} to {high:+.0%} of it"
            )


def errors(sku: str) -> tuple[Floats, Floats]:
    """Rows and log errors of every measured batch in bf16."""
    gpu = Database.packaged().gpu(sku)
    assert gpu.calibration is not None
    points, model = gpu.calibration.measurements("batched_gemm"), gpu.calibration.model("gemm")
    use = (points["state"] == "burst") & (points["dtype"] == "bf16") & (points["groups"] > 1)
    points = {name: values[use] for name, values in points.items()}
    table = gemm.table({"batched_gemm": points})
    times = gemm.stacked(table, lambda one: gemm.predict(one, model, gpu.sku, State.BURST), gpu.sku)
    return np.asarray(points["m"], float), np.log(times.time_s / gemm.measured_s({"batched_gemm": points}))


def joined(found: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    rows, error = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(error)


if __name__ == "__main__":
    main()
