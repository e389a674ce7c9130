"""A small calibration as a run would leave it: points of an imagined H100, sealed by the real code."""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tilewise.calibration.gemm_plan import COLUMNS
from tilewise.calibration.run import FAILURE_COLUMNS, RESULTS
from tilewise.calibration.seal import seal
from tilewise.hwdb.calibration import Calibration

SHAPES = [(m, n, k) for m in (1, 16, 256, 4096) for n in (1024, 4096, 4100) for k in range(512, 8192, 256)]
ABOUT = {
    "sku": "h100-sxm5-80gb", "level": "full", "production": True, "started": "2026-11-28T10:00:00+00:00",
    "script": "tilewise calibrate run", "budget_s": 600.0, "used_s": 598.0, "ranks": 1, "serial": "0a1b2c3d",
    "wanted_clock_hz": 1.95e9, "keys": {"gemm": list(COLUMNS)}, "stack": {"python": "3.12", "torch": "2.11.0"},
    "gpu": {"name": "NVIDIA H100 80GB HBM3", "driver": "580.1", "power_limit_w": 700.0, "sms": 132, "ecc": True,
            "memory_bytes": 85520809984, "max_clock_hz": 1.98e9},
}  # fmt: skip
Make = Callable[..., Calibration]


def write(path: Path, columns: Iterable[str], rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(columns), restval="")
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(name, scale=1, spread=0.002, clock=1980, kernel="...", **card entries) -> the sealed calibration."""

    def calibration(
        name: str, scale: float = 1.0, spread: float = 0.002, clock: float = 1980.0, kernel: str = "k", **about: object
    ) -> Calibration:
        run = tmp_path / name / "points"
        run.mkdir(parents=True)
        rows: list[dict[str, object]] = []
        for m, n, k in SHAPES:
            time_us = scale * max(2.0 * m * n * k / 6.5e14, (m * k + n * k + m * n) * 2 / 2.8e12, 3e-6) * 1e6
            rows.append(
                {"kind": "fwd", "dtype": "bf16", "m": m, "n": n, "k": k, "sets": 24, "state": "burst",
                 "time_us": f"{time_us:.5g}", "spread": spread, "clock_mhz": clock, "windows": 3, "discarded": 0}
            )  # fmt: skip
        write(run / "gemm.csv", (*COLUMNS, *RESULTS), rows)
        names = [{"family": "gemm", "key": f"fwd/bf16/{m}/{n}/{k}", "kernel": kernel} for m, n, k in SHAPES]
        names.append({"family": "gemm", "key": "wgrad/bf16/8/8/8", "kernel": "other"})
        write(run / "names.csv", ("family", "key", "kernel"), names)
        write(run / "failures.csv", FAILURE_COLUMNS, [])
        (run / "run.json").write_text(json.dumps({**ABOUT, **about}))
        return seal([run], tmp_path / name)

    return calibration
