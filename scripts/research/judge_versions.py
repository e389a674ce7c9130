"""How much the release of a library changes: the same kernel over the same shapes in two releases, among published tables.

TILEWISE_SHARED=FOLDER python scripts/research/judge_versions.py      (FOLDER/measurements; the figures of [versions] in hwdb/kernels/software.toml)
"""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

SHAPES = {
    "gemm": ("gpu", "dtype", "m", "n", "k", "batch"),
    "attention": (
        "gpu",
        "dtype",
        "kv_dtype",
        "phase",
        "batch",
        "q_heads",
        "kv_heads",
        "head_dim",
        "seq_q",
        "seq_kv",
        "causal",
    ),
    "moe": (
        "gpu",
        "dtype",
        "num_tokens",
        "hidden",
        "moe_inter",
        "topk",
        "num_experts",
        "moe_tp",
        "moe_ep",
        "distribution",
    ),
}


def kernel_of(table: str, row: dict[str, str]) -> tuple[str, str]:
    """(kernel, release): "" for a kernel that is not known to be the same in several releases."""
    release, _, kernel = (row["software"] if table == "gemm" else row["impl"]).partition("; ")
    if table == "gemm":
        linear = "linear" in kernel.lower() and "Cutlass" not in kernel and "FlashInfer" not in kernel
        plain = kernel == "kernel torch_flow" and row["dtype"].startswith("b")
        return ("torch's linear" if linear or plain else ""), release
    if table == "attention":
        return ("FlashAttention 3" if "fa3" in kernel else ""), release
    return kernel, release


def main() -> None:
    for table, sizes in SHAPES.items():
        times: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        with (Path(os.environ["TILEWISE_SHARED"]) / "measurements" / f"{table}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                kernel, release = kernel_of(table, row)
                if kernel and row["time_us"]:
                    times[(*(row[size] for size in sizes), kernel)][release].append(float(row["time_us"]))
        apart: dict[tuple[str, str], list[float]] = defaultdict(list)
        for found in times.values():
            for one, other in combinations(sorted(found), 2):
                apart[one, other].append(float(np.log(np.median(found[other]) / np.median(found[one]))))
        every = np.concatenate([np.array(logs) for logs in apart.values()])
        medians = np.abs([np.median(logs) for logs in apart.values()])
        print(
            f"{table}: {len(every)} pairs, 90 % within {np.quantile(np.abs(every), 0.9):.2f}, median pair of releases {np.median(medians):.1%} off"
        )


if __name__ == "__main__":
    main()
