"""Measures what scripts/research/plan_advice.py planned: advised shapes beside the originals, and the neighbours of two bases.

Real transformers models with random weights, bf16, sdpa attention, eager; a step is forward, loss, backward and fused AdamW,
no dropout. Needs torch and transformers, nothing of Tilewise: the predictions were made before and stand in the plan.

Protocol: a shape is built, run for WARM_S, then timed in WINDOWS windows of WINDOW_S each by events; the median counts, the
spread is (slowest - fastest) / median. Pairs run for longer, so that the clock is the sustained one, and the original is
measured again after its advised shapes: `drift` is its second time over its first. Rows are written as they come; what fails
is a row with a reason. Neighbours of both bases take turns in a random order until the time is up.

    python scripts/research/measure_advice.py PLAN.json --out DIR [--budget 500] [--device cpu]
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

PAIR = {"warm_s": 1.0, "window_s": 0.7, "windows": 3}
NEIGHBOUR = {"warm_s": 0.15, "window_s": 0.1, "windows": 3}
PAIR_COLUMNS = ("model", "variant", "changes", "batch", "sequence", "predicted_ms", "low_ms", "high_ms", "measured_ms", "spread",
                "predicted_ratio", "ratio_low", "ratio_high", "measured_ratio", "drift", "verdict", "cause", "reason")  # fmt: skip
NEIGHBOUR_COLUMNS = ("base", "index", "sizes", "parameters", "predicted_ms", "measured_ms", "spread", "reason")


class Table:
    """A CSV file that is whole after every row."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.file, self.columns, self.rows = path.open("w", newline=""), columns, []
        self.writer = csv.DictWriter(self.file, columns)
        self.writer.writeheader()

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        self.writer.writerow({name: row.get(name, "") for name in self.columns})
        self.file.flush()


def step_of(config: dict[str, Any], batch: int, sequence: int, device: str) -> Callable[[], None]:
    """A training step of a freshly built model."""
    settings = {**config, "use_cache": False, "max_position_embeddings": 4096}
    if config["model_type"] == "gpt2":
        del settings["max_position_embeddings"]
    elif config["model_type"] == "phi3":
        settings["pad_token_id"] = 0
    with torch.device(device):
        built = AutoConfig.for_model(**settings)
        model = AutoModelForCausalLM.from_config(built, attn_implementation="sdpa", dtype=torch.bfloat16)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, config["vocab_size"] - 1, (batch, sequence), device=device)

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def timed(step: Callable[[], None], warm_s: float, window_s: float, windows: int, device: str) -> tuple[float, float]:
    """Seconds a step, and the spread of the windows."""
    step()
    once = seconds(step, 2, device)
    seconds(step, max(1, round(warm_s / once)), device)
    count = max(2, round(window_s / once))
    found = [seconds(step, count, device) for _ in range(windows)]
    middle = statistics.median(found)
    return middle, (max(found) - min(found)) / middle


def seconds(step: Callable[[], None], count: int, device: str) -> float:
    """Seconds a step over `count` of them."""
    if device == "cpu":
        begin = time.perf_counter()
        for _ in range(count):
            step()
        return (time.perf_counter() - begin) / count
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / count


def measured(row: dict[str, Any], how: dict[str, Any], device: str) -> tuple[float, float, str]:
    """Seconds a step, spread, and "" or the reason why there are none."""
    try:
        return *timed(step_of(row["config"], row["batch"], row["sequence"], device), **how, device=device), ""
    except Exception as error:  # noqa: BLE001 - one shape must not lose the others
        return float("nan"), float("nan"), " ".join(str(error).split())[:200]
    finally:
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()


def measure_pairs(rows: list[dict[str, Any]], table: Table, device: str) -> None:
    """One model: as it is, every advised shape, and as it is once more."""
    first, first_spread, reason = measured(rows[0], PAIR, device)
    others = [measured(row, PAIR, device) for row in rows[1:]]
    again = measured(rows[0], PAIR, device)[0] if others else first
    base = (first + again) / 2
    for row, (time_s, spread, why) in zip(rows, [(base, first_spread, reason), *others], strict=True):
        table.add(
            **{name: row[name] for name in ("model", "variant", "changes", "batch", "sequence", "verdict", "cause")},
            predicted_ms=f"{1e3 * row['predicted_s']:.3f}", low_ms=f"{1e3 * row['low_s']:.3f}",
            high_ms=f"{1e3 * row['high_s']:.3f}", measured_ms=f"{1e3 * time_s:.3f}", spread=f"{spread:.4f}",
            predicted_ratio=f"{row['ratio']:.4f}", ratio_low=f"{row['ratio_low']:.4f}", ratio_high=f"{row['ratio_high']:.4f}",
            measured_ratio=f"{time_s / base:.4f}", drift=f"{again / first:.4f}", reason=why,
        )  # fmt: skip


def turns(bases: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for at in range(max(map(len, bases), default=0)):
        yield from (rows[at] for rows in bases if at < len(rows))


def measure_neighbours(bases: list[list[dict[str, Any]]], table: Table, device: str, until: float) -> None:
    for row in turns(bases):
        if time.monotonic() > until:
            print("the time is up; the rest of the neighbours is left out", flush=True)
            return
        time_s, spread, why = measured(row, NEIGHBOUR, device)
        table.add(base=row["base"], index=row["index"], sizes=json.dumps(row["sizes"]), parameters=int(row["parameters"]),
                  predicted_ms=f"{1e3 * row['predicted_s']:.4f}", measured_ms=f"{1e3 * time_s:.4f}", spread=f"{spread:.4f}", reason=why)  # fmt: skip


def report_pairs(table: Table) -> None:
    print(
        f"\n{'model':30}{'variant':10}{'predicted':>10}{'measured':>10}  {'ratio: predicted':>26}{'measured':>10}{'drift':>8}"
    )
    for row in table.rows:
        bounds = f"{row['predicted_ratio']} ({row['ratio_low']}-{row['ratio_high']})"
        print(f"{row['model']:30}{row['variant']:10}{row['predicted_ms']:>10}{row['measured_ms']:>10}  {bounds:>26}"
              f"{row['measured_ratio']:>10}{row['drift']:>8}  {row['changes']} {row['reason']}")  # fmt: skip


def report_neighbours(table: Table) -> None:
    """Regret and rank correlation of each base: of its time without what fewer parameters give by themselves."""
    for base in dict.fromkeys(row["base"] for row in table.rows):
        rows = [row for row in table.rows if row["base"] == base and not row["reason"]]
        own = next((row["parameters"] for row in rows if row["index"] == 0), None)
        if len(rows) < 3 or own is None:
            continue
        size = [min(1.0, row["parameters"] / own) for row in rows]
        predicted, times = (
            [float(row[name]) / by for row, by in zip(rows, size, strict=True)]
            for name in ("predicted_ms", "measured_ms")
        )
        chosen = times[min(range(len(rows)), key=lambda at: predicted[at])]
        print(f"{base}: {len(rows)} shapes, {min(times):.2f} to {max(times):.2f} ms; the one predicted fastest takes {chosen:.3f} ms, "
              f"regret {chosen / min(times) - 1:.2%}, rank correlation {correlation(ranks(predicted), ranks(times)):.3f}")  # fmt: skip


def ranks(values: list[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda at: values[at])
    found = [0.0] * len(values)
    for rank, at in enumerate(order):
        found[at] = float(rank)
    return found


def correlation(a: list[float], b: list[float]) -> float:
    mean_a, mean_b = statistics.mean(a), statistics.mean(b)
    top = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return top / (sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--budget", type=float, default=500.0, help="seconds in all; pairs first, neighbours until it is spent"
    )
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    plan = json.loads(options.plan.read_text())
    pairs = Table(options.out / "pairs.csv", PAIR_COLUMNS)
    near = Table(options.out / "neighbours.csv", NEIGHBOUR_COLUMNS)
    facts = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
             "calibration": plan["calibration"]}  # fmt: skip
    (options.out / "facts.json").write_text(json.dumps(facts))
    for model in dict.fromkeys(row["model"] for row in plan["pairs"]):
        measure_pairs([row for row in plan["pairs"] if row["model"] == model], pairs, options.device)
        print(f"{model} done after {time.monotonic() - begin:.0f} s", flush=True)
    measure_neighbours(plan["neighbours"], near, options.device, begin + options.budget)
    print(f"done after {time.monotonic() - begin:.0f} s")
    report_pairs(pairs)
    report_neighbours(near)


if __name__ == "__main__":
    main()
