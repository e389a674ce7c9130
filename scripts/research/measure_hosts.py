"""What the CPU takes to issue a model's kernels: steps of tiny transformers models, during which the GPU waits.

    python scripts/research/measure_hosts.py --out DIR [--device cpu]

Random weights, four layers 512 wide, bf16, sdpa, one sequence of 16 tokens, so that no kernel lasts as long as its launch.
`decode` adds a token to a DynamicCache of 32. `wall_ms` is the median of 30 calls by the host's clock, each from an idle GPU to
the next; `kernels` those of one call by the profiler. `grown.csv`: 24 decoding steps of 16 sequences over a DynamicCache of 2,048
tokens, each by itself, with the blocks that the allocator asked the driver for: what a growing cache costs besides its kernels.
Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import csv
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

FAMILIES = ("llama", "gpt2", "qwen3", "stablelm", "granite", "olmo2", "gemma2", "mixtral", "gpt_neox", "phi3")
COMPILED = ("llama", "gpt2")  # compiling takes longer than all else
SIZES = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
         "vocab_size": 1024, "num_hidden_layers": 4, "max_position_embeddings": 4096, "pad_token_id": 0}  # fmt: skip
WAYS = (("eager", "prefill"), ("eager", "decode"), ("eager", "train"), ("compiled", "prefill"), ("compiled", "train"))
CALLS = 30
WIDE = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
}
SEQUENCES, CACHED, STEPS = 16, 2048, 24


def build(family: str, device: str, sizes: dict[str, Any]) -> Any:
    config = AutoConfig.for_model(family, **sizes)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)


def calls(family: str, device: str) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Each way to run a tiny model of a family."""
    model = build(family, device, SIZES)
    ids = torch.randint(1, 1000, (1, 16), device=device)
    for mode, phase in WAYS:
        if mode == "compiled" and (device == "cpu" or family not in COMPILED):
            continue
        torch._dynamo.reset()
        run = model if mode == "eager" else torch.compile(model, dynamic=False)
        model.train(phase == "train")
        yield mode, phase, (train if phase == "train" else decode if phase == "decode" else prefill)(run, model, ids)


def train(run: Any, model: Any, ids: torch.Tensor) -> Callable[[], object]:
    def call() -> None:
        run(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        model.zero_grad(set_to_none=True)

    return call


@torch.no_grad()
def prefill(run: Any, model: Any, ids: torch.Tensor) -> Callable[[], object]:
    return torch.no_grad()(lambda: run(input_ids=ids, use_cache=False))


@torch.no_grad()
def decode(run: Any, model: Any, ids: torch.Tensor) -> Callable[[], object]:
    cache = DynamicCache(config=model.config)
    model(input_ids=ids.repeat(1, 2), past_key_values=cache, use_cache=True)
    return torch.no_grad()(lambda: run(input_ids=ids[:, :1], past_key_values=cache, use_cache=True))


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(call: Callable[[], object], device: str) -> float:
    wait(device)
    begin = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - begin


def counted(call: Callable[[], object], device: str) -> tuple[int, int]:
    """Kernels and framework operators of one call."""
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=kinds) as trace:
        call()
        wait(device)
    events = trace.events()
    kernels = sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events)
    return kernels, sum(event.name.startswith("aten::") for event in events)


def measure(device: str, out: Path) -> None:
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    with (out / "hosts.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "device", "mode", "phase", "wall_ms", "low_ms", "high_ms", "kernels", "operators"])
        for family in FAMILIES:
            for mode, phase, call in calls(family, device):
                for _ in range(3):
                    call()
                walls = sorted(1e3 * seconds(call, device) for _ in range(CALLS))
                kernels, operators = counted(call, device)
                row = [f"{each:.4f}" for each in (median(walls), walls[CALLS // 10], walls[-1 - CALLS // 10])]
                table.writerow([family, name, mode, phase, *row, kernels, operators])
                file.flush()
                print(
                    f"{family:10} {mode:9} {phase:8} {row[0]:>9} ms {kernels:5} kernels {operators:5} operators",
                    flush=True,
                )


@torch.no_grad()
def grow(device: str, out: Path) -> None:
    """Each step of a decode whose cache grows: its time and the driver's allocations."""
    sizes = SIZES if device == "cpu" else {**SIZES, **WIDE}
    for family in ("granite", "stablelm"):
        model = build(family, device, sizes).eval()
        cache = DynamicCache(config=model.config)
        model(
            input_ids=torch.randint(1, 1000, (SEQUENCES, CACHED), device=device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        token = torch.ones((SEQUENCES, 1), dtype=torch.int64, device=device)

        def call(model: Any = model, cache: Any = cache, token: Any = token) -> None:
            model(input_ids=token, past_key_values=cache, use_cache=True)

        with (out / f"grown-{family}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["step", "wall_ms", "driver_calls", "reserved_mib"])
            for step in range(STEPS):
                before = segments(device)
                wall = 1e3 * seconds(call, device)
                after = segments(device)
                table.writerow([step, f"{wall:.4f}", after[0] - before[0], after[1] >> 20])
                print(
                    f"{family:10} step {step:3} {wall:9.3f} ms, {after[0] - before[0]} allocations, {after[1] >> 20} MiB",
                    flush=True,
                )
        if device == "cuda":
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
                for _ in range(3):
                    call()
                wait(device)
            report = trace.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40)
            (out / f"grown-{family}.txt").write_text(report, encoding="utf-8")
        del model, cache
        if device == "cuda":
            torch.cuda.empty_cache()


def segments(device: str) -> tuple[int, int]:
    """Allocations and frees that the allocator has asked the driver for, and the bytes that it holds."""
    if device == "cpu":
        return 0, 0
    stats = torch.cuda.memory_stats()
    return stats["num_device_alloc"] + stats["num_device_free"], stats["reserved_bytes.all.current"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print(platform.platform(), platform.processor())
    grow(options.device, options.out)
    measure(options.device, options.out)


if __name__ == "__main__":
    main()
