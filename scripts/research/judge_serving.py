"""Judge engines' steps by measured serving, as a table in markdown; with --spread also by how much they are less sure than kernels.

    python scripts/research/judge_serving.py SERVING.csv --configs DIR [--skew 0] [--rows OUT.csv]

The table holds mean times per output token (TPOT) of aggregated serving. A sequence takes `osl` decode steps, in which the
others go on, and one prefill of `isl` tokens; so at a concurrency of `batch` a step is taken to be

    decode(batch, context = isl + osl / 2) + batch / osl * prefill(one sequence of isl tokens)

Asked are rows of one board whose attention is split by tensor parallelism, the experts by either. Scheduling, sampling, detokenising,
speculative decoding and requests that wait are no part of the prediction; --spread fits the [engine] terms of server/step/intervals.toml
(to intervals without them) and judges them on the GPUs, models and engines left out. No time is fitted.
"""

from __future__ import annotations

import argparse
import csv
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError
from tilewise.server.architecture import read_with
from tilewise.server.architecture.model import Architecture
from tilewise.server.step.intervals import apart
from tilewise.server.step.predict import predict
from tilewise.server.step.report import Interval
from tilewise.server.validate.models import of_depth
from tilewise.server.workload import Workload

FACTS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
WORDS = {"": "bf16", "bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
ONE = ("", "0", "1")


@dataclass(frozen=True, slots=True)
class Case:
    """What one row served, and its time per output token."""

    gpu: str
    model: str
    engine: str
    precision: str
    batch: int
    prompt: int
    answer: int
    ranks: int
    expert_ranks: int
    measured_s: float

    @property
    def cache(self) -> str:
        return "fp8" if self.precision != "bf16" and self.engine in FACTS["cache"] else "auto"


@dataclass(frozen=True, slots=True)
class Judged:
    """step: of the prediction as a whole; decode_s: its share without prefills."""

    case: Case
    step: Interval
    decode_s: float

    @property
    def ratio(self) -> float:
        return self.step.time_s / self.case.measured_s

    @property
    def inside(self) -> bool:
        return self.step.low_s <= self.case.measured_s <= self.step.high_s


def cases(rows: Iterable[dict[str, str]], left: Counter[str]) -> Iterator[Case]:
    """The rows that can be asked; why others cannot is counted in `left`."""
    for row in rows:
        why = unasked(row)
        if why:
            left[why] += 1
            continue
        name = model_of(row["model_path"])
        formats = FACTS["models"][name].get("formats", {})
        word = WORDS[row["moe_quant_mode"] if row["moe_quant_mode"] == "fp8_block" else row["gemm_quant_mode"]]
        yield Case(
            FACTS["gpus"][row["gpu"]], name, row["backend"], formats.get(row["precision"], word),
            int(row["concurrency"] or row["batch_size"]), int(row["isl"]), int(row["osl"]), int(row["tp_size"]),
            int(row["moe_ep_size"] or 0) or 1,
            float(row["tpot_ms"]) / 1e3,
        )  # fmt: skip


def unasked(row: Mapping[str, str]) -> str:
    """Why a row is not asked; "" where it is."""
    if row["mode"] != "agg":
        return "disaggregated"
    if not model_of(row["model_path"]):
        return f"no config of {row['model_path']}"
    if row["gemm_quant_mode"] not in WORDS:
        return f"format {row['gemm_quant_mode']}"
    if row["attention_dp_size"] not in ONE or row["pp_size"] not in ONE:
        return "data or pipeline parallel"
    tensor, expert = int(row["tp_size"]), int(row["moe_ep_size"] or 0) or 1
    if tensor > 8 or tensor % expert:
        return "more than one board"
    return "" if row["concurrency"] or row["batch_size"] else "no batch"


def model_of(path: str) -> str:
    """The longest known name in a model's path."""
    return max((name for name in FACTS["models"] if name in path), key=len, default="")


@cache
def architecture(configs: Path, name: str) -> Architecture:
    about = FACTS["models"][name]
    sizes, text = about.get("sizes", {}), (configs / about["config"]).read_text()
    if "num_hidden_layers" in sizes:
        text = of_depth(text, sizes["num_hidden_layers"])
    return read_with(text, sizes, name)


@cache
def step(configs: Path, gpu: str, model: str, **asked: Any) -> Interval:
    """One predicted step. Raises TilewiseError, and ValueError where an operator has no time."""
    report = predict(Database.packaged().gpu(gpu), architecture(configs, model), Workload(**asked), detailed=False)
    if not report.fits:
        raise ValueError("does not fit, so more GPUs shared it than the row says")
    if report.step.time is None:
        raise ValueError(report.step.refusal.partition(":")[2].strip())
    return report.step.time


def judged(case: Case, configs: Path, skew: float | None = None) -> Judged:
    how = {
        "stack": case.engine, "precision": case.precision, "kv_cache": case.cache, "tensor_parallel": case.ranks,
        "expert_skew": skew, "expert_parallel": case.expert_ranks, "reserve": 0.0,  # it was served, so it fitted
    }  # fmt: skip
    decode = step(
        configs, case.gpu, case.model, phase="decode", batch=case.batch, context=case.prompt + case.answer // 2, **how
    )
    prefill = step(configs, case.gpu, case.model, phase="prefill", batch=1, sequence=case.prompt, **how)
    share = case.batch / case.answer
    bounds = (getattr(decode, name) + share * getattr(prefill, name) for name in ("time_s", "low_s", "high_s"))
    return Judged(case, Interval(*bounds), decode.time_s)


def table(found: Iterable[Judged]) -> Iterator[str]:
    """A line for each GPU, model, engine and format."""
    yield "| GPU | model | engine | format | rows | predicted / measured: median | 10 to 90 % | in 90 % interval, % |"
    yield "|---|---|---|---|--:|--:|--:|--:|"
    groups: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for one in found:
        case = one.case
        groups[case.gpu, case.model, case.engine, case.precision].append(one)
        groups["all", "all", case.engine, "all"].append(one)
    for key, group in sorted(groups.items()):
        low, middle, high = np.quantile([one.ratio for one in group], [0.1, 0.5, 0.9])
        inside = 100 * np.mean([one.inside for one in group])
        yield f"| {' | '.join(key)} | {len(group)} | {middle:.2f} | {low:.2f} to {high:.2f} | {inside:.0f} |"


def spread(found: Sequence[Judged]) -> Iterator[str]:
    """The least further log half-widths below and above that cover nine rows in ten, and what they cover of rows left out."""
    yield "| left out | rows | below | above | covered, % |"
    yield "|---|--:|--:|--:|--:|"
    below, above = terms(found)
    yield f"| nothing | {len(found)} | {below:.2f} | {above:.2f} | {100 * covered(found, below, above):.0f} |"
    for name in ("gpu", "model", "engine"):
        values, inside = {getattr(one.case, name) for one in found}, 0.0
        for value in values:
            apart = [one for one in found if getattr(one.case, name) == value]
            others = [one for one in found if getattr(one.case, name) != value]
            inside += len(apart) * covered(apart, *terms(others))
        yield f"| each {name} | {len(found)} | | | {100 * inside / len(found):.0f} |"


def terms(found: Sequence[Judged]) -> tuple[float, float]:
    """What 5 % of the rows need more than, on either side of the prediction."""
    off = -np.log([one.ratio for one in found])
    ends = (
        np.log([one.step.time_s / one.step.low_s for one in found]),
        np.log([one.step.high_s / one.step.time_s for one in found]),
    )
    lacking = [
        np.sqrt(np.clip(off**2 - end**2, 0, None)) * (off * side > 0) for end, side in zip(ends, (-1, 1), strict=True)
    ]
    below, above = (float(np.quantile(each, 0.95, method="higher")) for each in lacking)
    return below, above


def covered(found: Sequence[Judged], below: float, above: float) -> float:
    """The share of rows inside intervals that are wider by these terms."""
    time, low, high = (np.array([getattr(one.step, name) for one in found]) for name in ("time_s", "low_s", "high_s"))
    measured = np.array([one.case.measured_s for one in found])
    low, high = apart(time, low, high, below, above)
    return float(np.mean((low <= measured) & (measured <= high)))


def write(path: str, found: Iterable[Judged]) -> None:
    """Every row with its prediction."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*Case.__dataclass_fields__, "predicted_s", "low_s", "high_s", "decode_s"])
        for one in found:
            own = (getattr(one.case, name) for name in Case.__dataclass_fields__)
            out.writerow([*own, one.step.time_s, one.step.low_s, one.step.high_s, one.decode_s])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--configs", type=Path, required=True)
    parser.add_argument("--skew", type=float, help="of tokens over experts, as --expert-skew; unset: the stack's")
    parser.add_argument("--rows")
    parser.add_argument("--spread", action="store_true")
    options = parser.parse_args()
    left: Counter[str] = Counter()
    found = []
    with open(options.table, newline="", encoding="utf-8") as file:
        for case in cases(csv.DictReader(file), left):
            try:
                found.append(judged(case, options.configs, options.skew))
            except (TilewiseError, ValueError) as error:
                left[f"refused: {case.gpu} {case.model} {case.engine} {case.precision}: {error}"] += 1
    print("\n".join(table(found)))
    print("\nnot asked:", *(f"{count} {why}" for why, count in left.most_common()), sep="\n  ")
    if options.spread:
        print("", *spread(found), sep="\n")
    if options.rows:
        write(options.rows, found)


if __name__ == "__main__":
    main()
