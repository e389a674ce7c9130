"""How long people wait, in CPU time beside `import numpy` in the same run, so that machines and their loads can be compared.

python scripts/bench/bench_speed.py [--cold] [--runs 7]

CPU is user and system of the process and its children, the least of several runs that take turns. --cold: whole processes alone,
as the continuous checks print them. Peers are asked where they are installed.
"""

from __future__ import annotations

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # whole processes are told as they are at the second start
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "llama-3-8b.json"
TEXT = EXAMPLE.read_text()
QUESTION = ("--phase", "prefill", "--seq", "2048")
TILEWISE = (sys.executable, "-m", "tilewise")
FLOOR = "import numpy"
SHAPES, POINTS = 1000, 10_000


def cold() -> dict[str, tuple[str, ...]]:
    """Whole processes by name, the bare interpreter's first."""
    predict = (*TILEWISE, "predict", str(EXAMPLE))
    found: dict[str, tuple[str, ...]] = {
        "python -c pass": (sys.executable, "-c", "pass"),
        FLOOR: (sys.executable, "-c", "import numpy"),
        "tilewise --help": (*TILEWISE, "--help"),
        "predict without --phase": (*predict, "--gpu", "h100-sxm5-80gb"),
        "predict with an unknown option": (*predict, "--gpus", "h100-sxm5-80gb"),
        "predict, H100": (*predict, "--gpu", "h100-sxm5-80gb", *QUESTION),
        "predict, B200": (*predict, "--gpu", "b200-sxm-180gb", *QUESTION),
        "predict, H100, train": (*predict, "--gpu", "h100-sxm5-80gb", "--phase", "train", "--seq", "4096"),
    }
    if peer := shutil.which("aiconfigurator"):
        found["aiconfigurator --help"] = (peer, "--help")
    return found


def cpu_s(command: tuple[str, ...]) -> float:
    """CPU seconds of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def print_cold(runs: int) -> None:
    """A table of whole processes and how many times `import numpy` each takes."""
    best = dict.fromkeys(cold(), float("inf"))
    for _ in range(runs + 1):  # the first writes what Python compiles
        for name, command in cold().items():
            best[name] = min(best[name], cpu_s(command))
    print("| whole process | CPU ms | x import numpy |\n|---|--:|--:|")
    for name, seconds in best.items():
        print(f"| {name} | {1e3 * seconds:.0f} | {seconds / best[FLOOR]:.2f} |")


def asked(sku: str, sizes: dict[str, int], sequence: int = 2048, detail: int = 2) -> object:
    from tilewise.v1.advisor_service_pb2 import PredictRequest
    from tilewise.v1.model_pb2 import Model
    from tilewise.v1.workload_pb2 import PHASE_PREFILL, Workload

    model = Model(config_json=TEXT, overrides=sizes)
    workload = Workload(phase=PHASE_PREFILL, batch=1, sequence=sequence)
    return PredictRequest(model=model, workload=workload, gpu=sku, detail=detail)


def warm() -> Iterator[tuple[str, Callable[[], object], int]]:
    """Questions to the embedded client: name, action and among how many its time is shared out."""
    from tilewise.client.client import TilewiseClient
    from tilewise.v1 import advice_pb2 as advice

    client, numbers = TilewiseClient(), count(1)
    for sku in ("h100-sxm5-80gb", "b200-sxm-180gb"):
        same = asked(sku, {})
        yield f"the same question again, {sku}", lambda same=same: client.predict(same), 1
        yield (
            f"never asked, another sequence, {sku}",
            lambda sku=sku: client.predict(asked(sku, {}, 1000 + 8 * next(numbers))),
            1,
        )
        yield (
            f"never asked, another FFN, {sku}",
            lambda sku=sku: client.predict(asked(sku, {"intermediate_size": 8192 + 8 * next(numbers)})),
            1,
        )
        yield (
            f"BatchPredict a shape, {SHAPES:,}, {sku}",
            lambda sku=sku: client.batch_predict(
                [asked(sku, {"intermediate_size": 8192 + next(numbers)}, detail=0) for _ in range(SHAPES)]
            ),
            SHAPES,
        )
    first = asked("h100-sxm5-80gb", {})
    request = advice.SweepRequest(
        model=first.model,
        workload=first.workload,
        gpus=[first.gpu],
        axes=[
            advice.Axis(field="intermediate_size", values=range(8192, 8192 + 8 * POINTS // 100, 8)),
            advice.Axis(field="sequence", values=range(128, 128 * 101, 128)),
        ],
    )
    yield f"sweep a point, {POINTS:,}, sizes x sequences", lambda: client.sweep(request), POINTS
    axes = [advice.Axis(field="sequence", values=range(64, 1064))]
    lengths = advice.SweepRequest(model=first.model, workload=first.workload, gpus=[first.gpu], axes=axes)
    yield "sweep a point, 1,000 sequences", lambda: client.sweep(lengths), 1000


def print_warm(runs: int) -> None:
    print("\n| in process | CPU a piece, us |\n|---|--:|")
    for name, action, pieces in warm():
        action()
        spent = []
        for _ in range(runs if pieces < SHAPES else 2):
            begin = time.process_time()
            action()
            spent.append(time.process_time() - begin)
        print(f"| {name} | {1e6 * min(spent) / pieces:,.1f} |", flush=True)


GEMM = """
import json, resource, sys, time
import numpy as np
from tilewise.hwdb.database import Database
from tilewise.hwdb.table import Label, table_from_columns
sku, rows = sys.argv[1], int(sys.argv[2])
draw = np.random.default_rng(0)
m, n, k = (np.round(2 ** draw.uniform(low, high, rows)).astype(np.int64) for low, high in ((0, 14), (6, 15), (6, 14)))
n, k = np.maximum(n // 8 * 8, 8), np.maximum(k // 8 * 8, 8)
columns = {"m": m, "n": n, "k": k, "precision": np.full(rows, 3), "output_bytes": np.full(rows, 2.0), "flops": 2.0 * m * n * k,
           "executed_flops": 2.0 * m * n * k, "bytes_read": 2.0 * (m * k + n * k), "bytes_written": 2.0 * m * n}
table = table_from_columns([Label(name="gemm", layer="", part="")], 1, rows, columns)
gpu = Database.packaged().gpu(sku)
gpu.predict(table.select(np.arange(1000)))
spent = []
for _ in range(5 if rows < 100_000 else 1):
    begin = time.process_time()
    gpu.predict(table)
    spent.append(time.process_time() - begin)
print(json.dumps([min(spent) / rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def print_gemm() -> None:
    print("\n| GEMMs | CPU us each | peak MB |\n|---|--:|--:|")
    for sku, rows in (
        ("h100-sxm5-80gb", 10_000),
        ("h100-sxm5-80gb", 1_000_000),
        ("b200-sxm-180gb", 1_000_000),
        ("mi300x", 1_000_000),
    ):
        done = subprocess.run((sys.executable, "-c", GEMM, sku, str(rows)), check=True, capture_output=True, text=True)
        seconds, kilobytes = json.loads(done.stdout)
        print(f"| {sku}, {rows:,} | {1e6 * seconds:.2f} | {kilobytes / 1024:.0f} |", flush=True)


EXPERTS = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "vocab_size": 151936, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True, "tie_word_embeddings": False,
    "hidden_act": "silu", "attention_bias": False, "rms_norm_eps": 1e-6, "max_position_embeddings": 40960,
}  # fmt: skip  # Qwen3-30B-A3B


def print_advice(runs: int) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(EXPERTS, file)
        file.flush()
        command = (*TILEWISE, "recommend", file.name, "--gpu", "b200-sxm-180gb", "--phase", "train", "--seq", "4096")
        best = min(cpu_s(command) for _ in range(runs))
    print(f"\nrecommend, a mixture of experts, train on a B200, whole process: {best:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cold", action="store_true", help="whole processes alone")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print_cold(options.runs)
    if not options.cold:
        print_warm(options.runs)
        print_gemm()
        print_advice(2)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
