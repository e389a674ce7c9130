"""Training steps of torchtitan's own model code: predicted first, then measured on a GPU.

    python scripts/research/measure_torchtitan.py predict GPU --out predicted.csv
    python scripts/research/measure_torchtitan.py measure --titan DIR --out DIR [--device cpu]

What torchtitan 0.2.2's parallelize.py and train.py do on a rank: fp32 weights, FSDP2 with bf16 parameters and fp32 reduction (over one
rank), each block compiled, the loss compiled, gradients clipped, fused AdamW. Random weights, two layers, 2 x 2048 tokens. `busy_ms` is
the sum of kernel times of one step by the profiler, `wall_ms` the median of three windows of five. DIR is the unpacked wheel of
torchtitan; its command line and data loaders are not imported. `predict` needs Tilewise, `measure` torch.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Shapes of released models in the words of their config.json
MODELS: dict[str, dict[str, Any]] = {
    "llama-3.2-3b": {"model_type": "llama", "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
                     "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": False},
    "qwen3-4b": {"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False},
    # chosen on 2026-11-30, when the code stood at cf1f33a
    "llama-3.1-8b": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                     "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": False},
    "qwen3-1.7b": {"model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16,
                   "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False},
}  # fmt: skip
LAYERS, BATCH, SEQUENCE = 2, 2, 2048


def predict(gpu: str, out: Path) -> None:
    """Busy and wall time of a step, each with its interval."""
    import tilewise

    with out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["model", "gpu", "calibration", "busy_ms", "wall_ms", "wall_low_ms", "wall_high_ms", "kernels", "trust"]
        )
        for name, shape in MODELS.items():
            config = {**shape, "num_hidden_layers": LAYERS}
            report = tilewise.predict(
                config, gpu=gpu, phase="train", batch=BATCH, sequence=SEQUENCE, stack="torchtitan"
            )
            step = report.step
            times = [f"{1e3 * each:.4f}" for each in (step.busy_s, step.time_s, step.time_low_s, step.time_high_s)]
            table.writerow([name, gpu, step.calibration, *times, f"{step.kernel_count:.0f}", step.trust])


def measure(titan: Path, device: str, out: Path) -> None:
    import torch
    import torch.distributed as dist

    out.mkdir(parents=True, exist_ok=True)
    load(titan)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    name_of = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    with (out / "torchtitan.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "device", "wall_ms", "spread", "busy_ms", "kernels"])
        for name in MODELS:
            torch._dynamo.reset()
            row = timed(step_of(name, device), device)
            table.writerow([name, name_of, *row])
            file.flush()
            print(name, *row, flush=True)
    dist.destroy_process_group()


def load(titan: Path) -> None:
    """torchtitan's modules without the packages that its command line and data loaders need."""
    sys.path.insert(0, str(titan))
    for name in (
        "",
        ".components",
        ".models",
        ".models.llama3",
        ".models.llama3.model",
        ".models.qwen3",
        ".models.qwen3.model",
    ):
        bare = types.ModuleType(f"torchtitan{name}")
        bare.__path__ = [str(titan / bare.__name__.replace(".", "/"))]
        sys.modules[bare.__name__] = bare
    parts = ("tokenizer", "dataloader", "ft", "lr_scheduler", "metrics", "optimizer", "validate")
    for name in ("config", "config.job_config", *(f"components.{part}" for part in parts)):
        sys.modules[f"torchtitan.{name}"] = Anything(f"torchtitan.{name}")


class Anything(types.ModuleType):
    """A module of which only names are asked, for annotations."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def build(name: str) -> Any:
    shape = MODELS[name]
    family = "llama3" if shape["model_type"] == "llama" else "qwen3"
    module = importlib.import_module(f"torchtitan.models.{family}.model.model")
    args = importlib.import_module(f"torchtitan.models.{family}.model.args")
    sizes: dict[str, Any] = {
        "dim": shape["hidden_size"], "n_layers": LAYERS, "n_heads": shape["num_attention_heads"],
        "n_kv_heads": shape["num_key_value_heads"], "vocab_size": shape["vocab_size"], "max_seq_len": SEQUENCE,
    }  # fmt: skip
    if family == "llama3":
        sizes |= {
            "multiple_of": 1,
            "ffn_dim_multiplier": shape["intermediate_size"] / int(8 * shape["hidden_size"] / 3),
        }
        return module.Transformer(args.TransformerModelArgs(**sizes))
    sizes |= {"head_dim": shape["head_dim"], "hidden_dim": shape["intermediate_size"], "qk_norm": True}
    return module.Qwen3Model(args.Qwen3ModelArgs(**sizes))


def step_of(name: str, device: str) -> Callable[[], None]:
    """One training step as torchtitan's train.py takes it."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with torch.device(device):
        model = build(name)
        with torch.no_grad():
            model.init_weights(torch.device(device))
    width = {weight.shape for key, weight in model.named_parameters() if key.endswith("w1.weight")}
    assert width == {(MODELS[name]["intermediate_size"], MODELS[name]["hidden_size"])}, width
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for key, block in model.layers.named_children():
        model.layers.register_module(key, torch.compile(block, fullgraph=True))
    for part in (model.tok_embeddings, *model.layers.values()):
        fully_shard(part, mp_policy=policy, reshard_after_forward=True)
    fully_shard([model.norm, model.output], mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss_of = torch.compile(importlib.import_module("torchtitan.components.loss").cross_entropy_loss)
    ids = torch.randint(0, MODELS[name]["vocab_size"], (BATCH, SEQUENCE), device=device)

    def step() -> None:
        optimizer.zero_grad()
        (loss_of(model(ids), ids) / ids.numel()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return step


def timed(step: Callable[[], None], device: str) -> list[str]:
    """wall_ms, spread, busy_ms and kernels of a step."""
    import time

    import torch
    from torch.profiler import ProfilerActivity, profile

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        step()
    windows = []
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(5):
            step()
        wait()
        windows.append((time.perf_counter() - start) / 5 * 1e3)
    low, middle, high = sorted(windows)
    with profile(activities=[ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]) as trace:
        step()
        wait()
    events = [event for event in trace.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(event.time_range.elapsed_us() for event in events) / 1e3
    return [f"{middle:.4f}", f"{(high - low) / middle:.3f}", f"{busy:.4f}", str(len(events))]


def main() -> None:
    global BATCH, SEQUENCE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "measure"])
    parser.add_argument("gpu", nargs="?", default="h100-sxm5-80gb")
    parser.add_argument("--titan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    if options.what == "predict":
        predict(options.gpu, options.out)
        return
    if options.device == "cpu":  # a rehearsal
        BATCH, SEQUENCE = 1, 16
        for shape in MODELS.values():
            shape |= {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
                      "head_dim": 64, "vocab_size": 512}  # fmt: skip
    measure(options.titan, options.device, options.out)


if __name__ == "__main__":
    main()
