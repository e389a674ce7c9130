"""Kernel maturity: how much longer an engine takes than the fastest one for the same shape and format, by GPU.

    python scripts/research/measure_maturity.py FOLDER

FOLDER holds gemm.csv, attention.csv and moe.csv. `python scripts/docs measure_maturity.table` puts it into docs/published.md.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from measure_transfer import loaded

from tilewise.calibration.published import points
from tilewise.calibration.published.rows import facts
from tilewise.hwdb.kernels.software import engines

ENGINES = tuple(engines())
HEAD = "| operator | GPU | TensorRT-LLM | vLLM | SGLang |\n|---|---|--:|--:|--:|"


def ratios(folder: Path, family: str, sku: str) -> dict[tuple[str, str], np.ndarray]:
    """(operator, engine) -> its best kernel's time over the fastest engine's, one entry a shape and format."""
    found = points.points(family, {sku: loaded(folder, family, sku)})
    if found is None:
        return {}
    best: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for shape, software, seconds in zip(
        found.shapes.tolist(), found.software.tolist(), found.measured_s.tolist(), strict=True
    ):
        origin = found.origins[software]
        operator = f"attention {origin.phase}" if family == "attention" else family
        key, engine = (operator, f"{shape} {origin.format}"), origin.engine
        best[key][engine] = min(seconds, best[key].get(engine, np.inf))
    several = {key: times for key, times in best.items() if len(times) > 1}
    collected: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (operator, _), times in several.items():
        for engine, seconds in times.items():
            collected[operator, engine].append(seconds / min(times.values()))
    return {key: np.array(values) for key, values in collected.items()}


def table(shared: Path) -> str:
    """The table of docs/published.md."""
    return measured(shared / "measurements")


def measured(folder: Path) -> str:
    lines = []
    for family in ("gemm", "attention", "moe"):
        for sku in facts()["systems"]:
            found = ratios(folder, family, sku)
            for operator in sorted({key[0] for key in found}):
                cells = [_cell(found.get((operator, engine))) for engine in ENGINES]
                lines.append(f"| {operator} | {sku} | {' | '.join(cells)} |")
    return "\n".join([HEAD, *sorted(lines)])


def _cell(values: np.ndarray | None) -> str:
    if values is None or len(values) < 20:
        return "-"
    return f"{np.median(values):.2f} ({np.quantile(values, 0.9):.2f})"


if __name__ == "__main__":
    print(measured(Path(sys.argv[1])))
