"""How long 100,000 candidate shapes take on one core: of Llama 3 8B, every combination of four sizes.

    OMP_NUM_THREADS=1 python scripts/bench/bench_advice.py

CPU time, of which the best of RUNS runs counts: a busy machine does not change it by much. `distinct`: operators that were asked of the kernel models, of all rows of the tables.
"""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.table import OperatorTable
from tilewise.server.advise.asked import CHUNK, Asked, Changes, figures
from tilewise.server.advise.recommend import Neighbourhood, recommend
from tilewise.server.advise.subject import Subject
from tilewise.server.operators import build
from tilewise.server.workload import Workload

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "llama-3-8b.json"
WORKLOADS = {
    "training, compiled": Workload(phase="train", batch=2, sequence=2048, mode="compiled"),
    "training, eager": Workload(phase="train", batch=2, sequence=2048),
    "prefill": Workload(phase="prefill", batch=2, sequence=2048),
    "decode": Workload(phase="decode", batch=32, context=4096),
}
RUNS = 3


def grid() -> Changes:
    """101,376 shapes: 16 widths, 9 depths, 11 vocabularies, 64 feed-forward widths."""
    heads, depths = range(24, 40), range(28, 37)
    vocabularies, widths = range(128256, 128256 + 11 * 64, 64), range(12288, 12288 + 64 * 64, 64)
    every = np.array([(128 * h, h, d, v, w) for h, d, v, w in product(heads, depths, vocabularies, widths)])
    names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "intermediate_size")
    columns = dict(zip(names, every.T.copy(), strict=True))
    return {**columns, "num_key_value_heads": np.ones_like(columns["hidden_size"])}


def distinct(subject: Subject, work: Workload, shapes: Changes) -> str:
    """Of the first pass: distinct operators of all."""
    first = {name: values[:CHUNK] for name, values in shapes.items()}
    table: OperatorTable = build(subject.read(first), work)
    return f"{len(table.distinct()[0]):,} of {len(table):,}"


def main() -> None:
    gpu, subject, shapes = Database.packaged().gpu("h100-sxm5-80gb"), Subject(EXAMPLE.read_text(), {}), grid()
    total = len(shapes["hidden_size"])
    print(f"{'':22}{'candidates':>12}{'CPU s':>9}{'us each':>9}  distinct in a pass of {CHUNK:,}")
    for name, work in WORKLOADS.items():
        took = []
        for _ in range(RUNS):
            begin = time.process_time()
            found = figures(subject, [Asked(gpu, work)], shapes)
            took.append(time.process_time() - begin)
        assert not np.isnan(found.time_s).any()
        print(f"{name:22}{total:12,}{min(took):9.2f}{1e6 * min(took) / total:9.1f}  {distinct(subject, work, shapes)}")
    begin = time.process_time()
    *_, last = recommend(subject, [Asked(gpu, WORKLOADS["training, compiled"])], Neighbourhood())
    took_s = time.process_time() - begin
    print(f"{'recommend, as it comes':22}{last.candidates:12,}{took_s:9.2f}")  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
