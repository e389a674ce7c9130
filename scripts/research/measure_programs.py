"""Steps of transformers models in every phase and way to run them: predicted first, then measured on a GPU.

    python scripts/research/measure_programs.py predict GPU --out predicted.csv [--only NAME,...] [--ways MODE:PHASE,...]
    python scripts/research/measure_programs.py measure --out DIR [--only NAME,...] [--ways MODE:PHASE,...]

Random weights, two layers, bf16, sdpa. Prefill and training of 2 x 2048 tokens; decode of 16 sequences over a DynamicCache of
2048 tokens (eager) or a StaticCache of 4096 (compiled); graph: the same under reduce-overhead. `busy_ms` is the sum of kernel
times of one call by the profiler, `wall_ms` the median of three windows of five calls. `predict` needs Tilewise, `measure` torch
and transformers.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Shapes of released models that no model or program here was made by, in the words of their config.json.
MODELS: dict[str, dict[str, Any]] = {
    "granite-2b": {"model_type": "granite", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "vocab_size": 49155, "max_position_embeddings": 8192},
    "mistral-7b": {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": None, "max_position_embeddings": 8192},
    "olmo2-1b": {"model_type": "olmo2", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16,
                 "num_key_value_heads": 16, "vocab_size": 100352, "max_position_embeddings": 8192},
    "phi3-mini": {"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32,
                  "num_key_value_heads": 32, "vocab_size": 32064, "pad_token_id": 32000, "max_position_embeddings": 8192},
    "stablelm-3b": {"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912, "num_attention_heads": 32,
                    "num_key_value_heads": 32, "vocab_size": 50257, "max_position_embeddings": 8192},
    # chosen later, when stacks, hosts and the comparison of families had been built
    "nemotron-4b": {"model_type": "nemotron", "hidden_size": 3072, "intermediate_size": 9216, "num_attention_heads": 24,
                    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256000, "max_position_embeddings": 8192,
                    "tie_word_embeddings": False},
    "aya-8b": {"model_type": "cohere", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
               "num_key_value_heads": 8, "vocab_size": 256000, "max_position_embeddings": 8192},
    "gemma-2b": {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8,
                 "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192},
    **{f"gpt2-xl-{vocabulary}": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 2, "n_positions": 4096,
                                 "vocab_size": vocabulary, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
       for vocabulary in (50257, 50304)},
}  # fmt: skip
LAYERS, BATCH, SEQUENCE, SEQUENCES, CACHED, STATIC = 2, 2, 2048, 16, 2048, 4096
WAYS = [("eager", "prefill"), ("eager", "train"), ("eager", "decode"), ("compiled", "train"), ("compiled", "prefill"),
        ("compiled", "decode"), ("graph", "decode"), ("graph", "train")]  # fmt: skip
GROWN = 20  # tokens by which a cache has grown when it is looked at


def config_of(name: str) -> dict[str, Any]:
    return {**MODELS[name], "num_hidden_layers": LAYERS, "torch_dtype": "bfloat16"}


def predict(gpu: str, names: list[str], ways: list[tuple[str, str]], out: Path) -> None:
    """Busy time of every model and way, with its interval, and the same of the wall time."""
    import tilewise

    with out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["model", "gpu", "calibration", "mode", "phase", "busy_ms", "low_ms", "high_ms", "kernels", "trust",
             "wall_ms", "wall_low_ms", "wall_high_ms"]
        )  # fmt: skip
        for name in names:
            for mode, phase in ways:
                table.writerow([name, gpu, *predicted(tilewise, config_of(name), gpu, mode, phase)])


def predicted(tilewise: Any, config: dict[str, Any], gpu: str, mode: str, phase: str) -> list[Any]:
    from tilewise.hwdb.database import Database
    from tilewise.server.architecture import read
    from tilewise.server.step.predict import predict as predict_step
    from tilewise.server.workload import Workload

    sizes: dict[str, Any] = {"batch": BATCH, "sequence": SEQUENCE}
    if phase == "decode":
        sizes = {"batch": SEQUENCES, "context": CACHED + GROWN if mode == "eager" else STATIC}
    more = {"train": {"optimizer": "none"}, "prefill": {"cache": "none"}, "decode": {}}[phase]
    report = predict_step(
        Database.packaged().gpu(gpu), read(json.dumps(config)), Workload(phase=phase, mode=mode, **sizes, **more)
    )
    busy, wall = (
        [f"{1e3 * each:.4f}" for each in (time.time_s, time.low_s, time.high_s)]
        for time in (report.step.busy, report.step.time)
    )
    return [
        report.calibration,
        mode,
        phase,
        *busy,
        f"{report.step.launches:.0f}",
        report.step.trust.name.lower(),
        *wall,
    ]


def measure(names: list[str], ways: list[tuple[str, str]], out: Path, budget_s: float) -> None:
    import torch

    out.mkdir(parents=True, exist_ok=True)
    last = time.time() + budget_s
    with (out / "steps.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "device", "mode", "phase", "wall_ms", "spread", "busy_ms", "kernels"])
        for name in names:
            for mode, phase, call in calls(name, ways):
                if time.time() > last:
                    print("out of time before", name, mode, phase)
                    return
                row = timed(call)
                table.writerow([name, torch.cuda.get_device_name(), mode, phase, *row])
                file.flush()
                print(
                    f"{name:12} {mode:9} {phase:8} wall {row[0]:>9} busy {row[2]:>9} ms, {row[3]:5} kernels", flush=True
                )


def calls(name: str, ways: list[tuple[str, str]]) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Each way to run a model, set up when it is asked for."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

    wanted = {key: value for key, value in config_of(name).items() if key not in ("model_type", "torch_dtype")}
    config = AutoConfig.for_model(MODELS[name]["model_type"], **wanted)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    ids = torch.randint(0, config.vocab_size - 1, (BATCH, SEQUENCE), device="cuda")
    token = torch.randint(0, config.vocab_size - 1, (SEQUENCES, 1), device="cuda")
    for mode, phase in ways:
        torch._dynamo.reset()
        how = {} if mode != "graph" else {"mode": "reduce-overhead"}
        run = model if mode == "eager" else torch.compile(model, dynamic=False, **how)
        model.train(phase == "train")
        cache: Any = None
        if phase == "decode":
            cache = DynamicCache(config=config) if mode == "eager" else StaticCache(config=config, max_cache_len=STATIC)
            filled = torch.randint(
                0, config.vocab_size - 1, (SEQUENCES, CACHED if mode == "eager" else STATIC - 100), device="cuda"
            )
            with torch.no_grad():
                model(input_ids=filled, past_key_values=cache, use_cache=True, logits_to_keep=1)
        at = torch.full((SEQUENCES, 1), STATIC - 50, device="cuda")

        def call(run: Any = run, phase: str = phase, mode: str = mode, cache: Any = cache, at: Any = at) -> None:
            if mode == "graph":
                torch.compiler.cudagraph_mark_step_begin()
            if phase == "train":
                run(input_ids=ids, labels=ids, use_cache=False).loss.backward()
                for parameter in model.parameters():
                    parameter.grad = None
                return
            with torch.no_grad():
                if phase == "prefill":
                    run(input_ids=ids, logits_to_keep=1, use_cache=False)
                    return
                places = {} if mode == "eager" else {"position_ids": at}
                run(input_ids=token, past_key_values=cache, use_cache=True, **places)

        yield mode, phase, call
        torch.cuda.empty_cache()


def timed(call: Callable[[], None]) -> list[str]:
    """wall_ms, spread, busy_ms and kernels of a call."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        call()
    windows = []
    for _ in range(3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            call()
        end.record()
        end.synchronize()
        windows.append(start.elapsed_time(end) / 5)
    low, middle, high = sorted(windows)
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        call()
        torch.cuda.synchronize()
    events = [event for event in trace.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(event.time_range.elapsed_us() for event in events) / 1e3
    return [f"{middle:.4f}", f"{(high - low) / middle:.3f}", f"{busy:.4f}", str(len(events))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "measure"])
    parser.add_argument("gpu", nargs="?", default="h100-sxm5-80gb")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--ways", default=",".join(map(":".join, WAYS)))
    parser.add_argument("--budget", type=float, default=500.0)
    options = parser.parse_args()
    names, ways = options.only.split(","), [tuple(way.split(":")) for way in options.ways.split(",")]
    if options.what == "predict":
        predict(options.gpu, names, ways, options.out)
    else:
        measure(names, ways, options.out, options.budget)


if __name__ == "__main__":
    main()
