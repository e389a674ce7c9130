"""Write calibration/published/sample.npz: which shapes of the public package a calibration may take.

    python scripts/research/sample_published_shapes.py FOLDER

FOLDER holds gemm.csv, attention.csv, mla.csv, moe.csv, collective.csv and memory_bound_ops.csv, a sample of the package's tables.
Their shapes alone are fitted, so that every other row of the package can judge.
"""

import sys
from pathlib import Path

import numpy as np

from tilewise.calibration.published import rows
from tilewise.calibration.published.aiconfigurator import mark

TABLES = ("gemm", "attention", "mla", "moe", "collective", "memory_bound_ops")


def marks(folder: Path) -> dict[str, np.ndarray]:
    """By family: the marks of every shape of every SKU in the tables that came out of the package."""
    found: dict[str, set[int]] = {}
    for name in TABLES:
        for sku in rows.facts()["systems"]:
            table = rows.read(folder / f"{name}.csv", sku)
            if table is None:
                raise SystemExit(f"{name}.csv is no table of published rows")
            ours = np.char.startswith(table.text("source"), "aiconfigurator-core")
            found.setdefault(table.family, set()).update(
                mark(sku, shape) for shape in rows.shape_texts(table.family, table.columns)[ours].tolist()
            )
    return {family: np.array(sorted(some), np.uint32) for family, some in found.items()}


if __name__ == "__main__":
    place = Path(__file__).resolve().parents[2] / "calibration" / "published" / "sample.npz"
    np.savez_compressed(place, **marks(Path(sys.argv[1])))
    print(place, place.stat().st_size, "bytes")
