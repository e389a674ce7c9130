"""The tables of docs/stacks.md: what each stack is, and training steps that others published beside their predictions.

The published steps are rows of end_to_end.csv (shared measurements). A row's step is one micro-batch times their number, with the
optimizer's part divided by the GPUs that share it; what the GPUs send each other is left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tilewise.hwdb.database import Database
from tilewise.server import stacks
from tilewise.server.architecture import Architecture, read
from tilewise.server.step.predict import predict
from tilewise.server.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
GPUS = {
    "GB300": "gb300-279gb", "GB200": "gb200-186gb", "B200-SXM": "b200-sxm-180gb", "H100-SXM5-80GB": "h100-sxm5-80gb",
    "H100-96GB-HBM2e-500W": "h100-sxm5-80gb",
}  # fmt: skip


def table() -> str:
    """One row a stack, as stacks.toml has it, and what each was read off."""
    head = "| stack | program | phases | modes | attention | cache | weights, master, moments, gradients | models |"
    every = [stacks.stack(name) for name in stacks.NAMES]
    read_off = (f"- `{known.name}` was read off {known.sources}." for known in every)
    return "\n".join([head, "|---" * head.count("| ") + "|", *map(_row, every), "", *read_off])


def _row(known: stacks.Stack) -> str:
    trains = "train" in known.phases
    kept = f"{known.weights}, {known.master}, {known.moments}, {known.gradients}" if trains else "-"
    return " | ".join(
        (f"| `{known.name}`: {known.title}", known.program, ", ".join(known.phases), ", ".join(known.modes), known.attention,
         known.cache, kept, ", ".join(known.families) or "all") 
    ) + " |"  # fmt: skip


def published(shared: Path) -> str:
    """Predicted over measured tokens a second of every published step that one GPU's prediction can answer."""
    lines = [
        "| stack | published for | format | micro-batch | predicted / measured rate | measured step inside the interval |"
    ]
    lines.append("|---|---|---|--:|--:|---|")
    with (shared / "measurements" / "end_to_end.csv").open(newline="", encoding="utf-8") as file:
        return "\n".join([*lines, *(line for row in csv.DictReader(file) if (line := _line(row)))])


def _line(row: Mapping[str, str]) -> str:
    asked = _asked(row)
    if not asked:
        return ""
    rates = [_rates(row, work) for work in asked]
    low, rate, high = (sum(each) / len(each) for each in zip(*rates, strict=True))
    measured = float(row["tokens_per_s_per_gpu"])
    inside = "yes" if low <= measured <= high else "no"
    one = asked[0]
    return f"| {one.stack} | {row['gpu']} | {one.precision} | {one.batch} | {rate / measured:.2f} | {inside} |"


def _asked(row: Mapping[str, str]) -> list[Workload]:
    """The steps whose mean a row ran; nothing for rows of other models, layouts or formats."""
    batch = re.search(r"MBS=(\d+)", row["parallelism"])
    if row["gpu"] not in GPUS or row["n_gpus"] != "8" or batch is None:
        return []
    sizes = {"phase": "train", "batch": int(batch[1]), "sequence": 8192}
    if row["model"] == "LLAMA3_8B" and row["precision"].startswith("FP8-CS") and "TP=1 PP=1 CP=1" in row["parallelism"]:
        return [Workload(stack="megatron", precision="fp8", **sizes)]
    if row["framework"].startswith("torchtitan") and row["precision"] == "bf16" and "compile" in row["parallelism"]:
        return [Workload(stack="torchtitan", recompute=how, **sizes) for how in ("none", "full")]
    return []


def _rates(row: Mapping[str, str], work: Workload) -> Iterator[float]:
    """Tokens a second and GPU by the slowest, the predicted and the fastest step."""
    report = predict(Database.packaged().gpu(GPUS[row["gpu"]]), _llama(), work, detailed=False)
    assert report.step.time is not None, report.step.refusal
    gpus = int(row["n_gpus"])
    number = int(row["global_batch"]) / gpus / work.batch
    update = sum(layer.time.time_s for layer in report.layers if layer.name == "optimizer")
    for time in (report.step.time.high_s, report.step.time.time_s, report.step.time.low_s):
        share = time / report.step.time.time_s
        yield number * work.tokens / (share * (number * (report.step.time.time_s - update) + update / gpus))


def _llama() -> Architecture:
    return read((ROOT / "examples" / "llama-3-8b.json").read_text(encoding="utf-8"))
