"""Fit the law of engines' own all-reduce kernels to published times: hwdb/kernels/collective/all_reduce.toml.

    python scripts/research/fit_engine_all_reduce.py            needs pip install 'tilewise[published]'

Time is a latency and bytes over a rate, in up to three ranges of message size (one shot, two shots, a library's rings). Of each
engine the newest release counts, launched from a graph. The margin is what 90 % of the sizes lie off the law that the others give.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.calibration.published.aiconfigurator import PACKAGE, _folder
from tilewise.calibration.published.rows import facts

TARGET = Path(__file__).resolve().parents[2] / "hwdb" / "kernels" / "published" / "all_reduce.toml"
ENGINES = ("trtllm", "vllm", "sglang")
RANKS = (2, 4, 8)  # of one board
ELEMENT = 2  # bytes: the tables count 16-bit elements
SMALLEST = 1024  # bytes: a row of one token is larger
RANGES, LEAST = 3, 3  # ranges of a law at most, sizes in one at least
MARGIN_MIN = 0.05
Array = NDArray[np.float64]
HEAD = """# Time of a serving engine's own all-reduce on one board: seconds + bytes x seconds_per_byte, by the range that the message's
# bytes lie in. margin: half-width of log(time) that holds 90 % of the sizes, each left out in turn. Fitted by
# scripts/research/fit_engine_all_reduce.py to custom_allreduce_perf of {package} {version} (Apache-2.0; bursts from a graph, one row
# a size; not for more than one board).
"""


def main() -> None:
    lines = [HEAD.format(package=PACKAGE, version=facts()["source"]["aiconfigurator"]["version"])]
    for sku in facts()["systems"]:
        for engine in ENGINES:
            lines += entries(sku, engine)
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def entries(sku: str, engine: str) -> Iterator[str]:
    """The TOML tables of one engine on one GPU."""
    for release, rows in newest(sku, engine):
        for ranks in RANKS:
            size, time = points(rows, ranks)
            if len(size) < RANGES * LEAST:
                continue
            starts, laws = fit(size, time)
            off = [
                one_off(np.delete(size, at), np.delete(time, at), size[at], time[at]) for at in range(1, len(size) - 1)
            ]
            margin = max(MARGIN_MIN, float(np.quantile(off, 0.9)))
            yield f'[{sku}.{engine}."{ranks}"]\nsoftware = "{engine} {release}; all_reduce"'
            yield f"from_bytes = [{', '.join(f'{start:.0f}' for start in starts)}]"
            yield f"seconds = [{', '.join(f'{law[0]:.3g}' for law in laws)}]"
            yield f"seconds_per_byte = [{', '.join(f'{law[1]:.3g}' for law in laws)}]\nmargin = {margin:.2f}\n"


def newest(sku: str, engine: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """The newest release's rows, or nothing."""
    import pyarrow.parquet

    found = list(_folder(sku).glob(f"comm/{engine}/*/custom_allreduce_perf.parquet"))
    if not found:
        return []
    path = max(found, key=lambda one: [int(number) for number in re.findall(r"\d+", one.parent.name)])
    return [(path.parent.name, pyarrow.parquet.read_table(path).to_pylist())]


def points(rows: list[dict[str, Any]], ranks: int) -> tuple[Array, Array]:
    """Bytes and seconds, launched from a graph, within one board."""
    chosen = [
        (row["message_size"] * float(ELEMENT), row["latency"] / 1e3)
        for row in rows
        if row["num_gpus"] == ranks and "eager" not in row["kernel_source"] and "MNNVL" not in row["kernel_source"]
        and row["message_size"] * ELEMENT >= SMALLEST
    ]  # fmt: skip
    size, time = np.array(sorted(chosen), float).reshape(-1, 2).T
    return size, time


def fit(size: Array, time: Array) -> tuple[list[float], list[Array]]:
    """Where each range starts, and its latency and seconds a byte: the ranges that leave the least squares of log(time)."""
    best: tuple[float, list[float], list[Array]] = (np.inf, [], [])
    for cuts in combinations(range(LEAST, len(size) - LEAST + 1), RANGES - 1):
        ends = [0, *cuts, len(size)]
        if min(np.diff(ends)) < LEAST:
            continue
        laws = [line(size[i:j], time[i:j]) for i, j in pairwise(ends)]
        starts = [0.0, *(float(np.sqrt(size[cut - 1] * size[cut])) for cut in cuts)]
        error = float(np.mean(np.log(seconds(starts, laws, size) / time) ** 2))
        best = min(best, (error, starts, laws), key=lambda one: one[0])
    return best[1], best[2]


def line(size: Array, time: Array) -> Array:
    """Latency and seconds a byte, neither negative, with the least squares of relative errors."""
    found, *_ = np.linalg.lstsq(np.stack([1 / time, size / time], 1), np.ones(len(size)), rcond=None)
    if found[0] < 0:
        return np.array([0.0, 1 / np.mean(size / time)])
    return found if found[1] >= 0 else np.array([1 / np.mean(1 / time), 0.0])


def seconds(starts: list[float], laws: list[Array], size: Array) -> Array:
    at = np.searchsorted(starts, size, side="right") - 1
    constants = np.array(laws)[at]
    time: Array = constants[:, 0] + constants[:, 1] * size
    return time


def one_off(size: Array, time: Array, other: float, measured: float) -> float:
    """How far a size lies off the law that the others give."""
    return float(abs(np.log(seconds(*fit(size, time), np.array([other]))[0] / measured)))


if __name__ == "__main__":
    main()
