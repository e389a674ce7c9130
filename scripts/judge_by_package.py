"""Judge published calibrations by the rows of aiconfigurator-core that were never taken: every shape outside the sample.

    python scripts/judge_by_package.py SKU...

No time may be fitted or tuned on what this prints. It goes into docs/published.md between its marks.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from published_docs import put

from tilewise.calibration.published import aiconfigurator, points
from tilewise.calibration.published.aiconfigurator import mark
from tilewise.hwdb.database import Database
from tilewise.hwdb.table import Kind
from tilewise.hwdb.times import State

KINDS = {"gemm": Kind.GEMM, "attention": Kind.ATTENTION, "moe": Kind.GROUPED_GEMM}
ROWS = 60_000  # of a family at most, by lot
HEAD = "| GPU | operator | shapes | rows | mean error, % | median, % | p90, % | in 90 % interval, % | refused |"


def judged(sku: str) -> Iterator[str]:
    gpu = Database.packaged().gpu(sku)
    every = aiconfigurator.load(sku, everything=True)
    for family, kind in KINDS.items():
        found = points.points(family, {sku: [points.only(one, points.modelled(one.family, one)) for one in every]})
        if found is None:
            continue
        sample = aiconfigurator.sample()[family]
        unseen = ~np.isin(np.array([mark(sku, shape) for shape in found.shapes.tolist()], np.uint32), sample)
        rows = np.flatnonzero(unseen)
        rows = np.random.default_rng(0).permutation(rows)[:ROWS]
        some = found[np.isin(np.arange(len(unseen)), rows)]
        codes = np.array([gpu.library(kind, name) for name in some.names])[some.software]
        times = gpu.predict(replace(some.table, library=codes), State.BURST)
        for name, group in _groups(family, some, codes > 0):
            yield line(sku, family, name, times, some.measured_s, group)


def _groups(family: str, some: points.Points, known: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """GEMMs whose m is a power of two, as the sample's are, and others."""
    if family != "gemm":
        yield "all", known
        return
    m = some.table.m.astype(np.int64)
    regular = m & (m - 1) == 0
    yield "m a power of two", known & regular
    yield "other m", known & ~regular


def line(sku, family, name, times, measured_s, rows):  # type: ignore[no-untyped-def]
    answered = rows & np.isfinite(times.distance)  # what the model refuses may be patched by the roofline: not judged
    off = np.abs(times.time_s[answered] / measured_s[answered] - 1)
    inside = (times.low_s <= measured_s) & (measured_s <= times.high_s)
    cells = [100 * off.mean(), 100 * np.median(off), 100 * np.quantile(off, 0.9)]
    return (
        f"| {sku} | {family} | {name} | {answered.sum()} | {cells[0]:.1f} | {cells[1]:.1f} | {cells[2]:.1f} | "
        f"{100 * inside[answered].mean():.0f} | {(rows & ~answered).sum()} |"
    )


if __name__ == "__main__":
    lines = [one for sku in sys.argv[1:] for one in judged(sku)]
    put("package", "\n".join([HEAD, "|---|---|---|--:|--:|--:|--:|--:|--:|", *lines]))
    print("\n".join(lines))
