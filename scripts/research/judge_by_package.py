"""Judge published calibrations by the rows of aiconfigurator-core that were never taken: every shape outside the sample.

    python scripts/research/judge_by_package.py SKU...     needs pip install 'tilewise[published]'

No time may be fitted or tuned on what this prints. `python scripts/docs judge_by_package.table` puts it into docs/published.md.
"""

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from tilewise.calibration.published import aiconfigurator, points
from tilewise.calibration.published.rows import Rows
from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.attention import latent, window
from tilewise.hwdb.table import Kind, Phase
from tilewise.hwdb.times import State

KINDS = {"gemm": Kind.GEMM, "attention": Kind.ATTENTION, "moe": Kind.GROUPED_GEMM}
SKUS = ("b200-sxm-180gb", "h200-sxm-141gb", "gb200-186gb", "a100-sxm-80gb")  # of docs/published.md
ROWS = 60_000  # of a family at most, by lot
HEAD = "| GPU | operator | shapes | rows | mean error, % | median, % | p90, % | in 90 % interval, % | refused |"


def table(skus: Sequence[str] = SKUS) -> str:
    lines = [one for sku in skus for one in judged(sku)]
    return "\n".join([HEAD, "|---|---|---|--:|--:|--:|--:|--:|--:|", *lines])


def judged(sku: str) -> Iterator[str]:
    gpu = Database.packaged().gpu(sku)
    every = aiconfigurator.load(sku, everything=True)
    unseen = [points.only(one, points.modelled(one.family, one) & ~taken(one, sku)) for one in every]
    for family, kind in KINDS.items():
        found = points.points(family, {sku: unseen})
        if found is None:
            continue
        rows = np.random.default_rng(0).permutation(len(found.shapes))[:ROWS]
        some = found[np.isin(np.arange(len(found.shapes)), rows)]
        codes = np.array([gpu.library(kind, one) for one in some.origins])[some.software]
        times = gpu.predict(replace(some.table, library=codes), State.BURST)
        for name, group in _groups(family, some, codes > 0):
            if group.any():
                yield line(sku, family, name, times, some.measured_s, group)


def taken(rows: Rows, sku: str) -> np.ndarray:
    """Rows of the sampled shapes, by whichever rank of how many; with a window they were not taken."""
    sampled = aiconfigurator.sampled(rows.family, rows.columns, sku)
    whole = rows.number("window", 0.0) == 0
    return whole & np.isin(rows.shapes, rows.shapes[sampled])


def _groups(family: str, some: points.Points, known: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """GEMMs whose m is a power of two, as the sample's are, and others; attention by what the sample has of it."""
    if family == "attention":
        over_latent, cut = latent.is_latent(some.table), window.cuts(some.table)
        plain = ~over_latent & (some.table.window == 0)
        shortest = np.where(some.table.phase == Phase.DECODE, 128, 64)
        sizes = (some.table.seq_kv >= shortest) & np.isin(some.table.head_dim, (64, 128, 256))
        yield "all without windows", known & plain
        yield "sizes of the sample", known & plain & sizes
        yield "other sizes", known & plain & ~sizes
        yield "latent", known & over_latent
        yield "windows that cut", known & cut
        return
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
    print(table(sys.argv[1:]))
