"""Steps of transformers models in every phase and way to run them: predicted first, then measured on a GPU.

    python scripts/research/measure_programs.py predict GPU --out predicted.csv [--only NAME,...] [--ways MODE:PHASE,...]
    python scripts/research/measure_programs.py measure --out DIR [--only NAME,...] [--ways MODE:PHASE,...] [--device cpu]

Random weights, two layers, bf16, sdpa. Prefill and training of 2 x 2048 tokens; decode of 16 sequences over a DynamicCache of
2048 tokens (eager) or a StaticCache of 4096 (compiled); graph: the same under reduce-overhead. `busy_ms` is the sum of kernel
times of one call by the profiler, `wall_ms` the median of three windows of five calls, `joules` a call's share of NVML's energy counter
over 1.2 s of calls after half a second to settle (prefill and training). `kernels.csv` holds each kernel's count and time.
`predict` needs Tilewise, `measure` torch and transformers; `--device cpu` rehearses on tiny sizes.
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
    # chosen on 2026-11-30, when the code stood at cf1f33a
    "glm4-9b": {"model_type": "glm4", "hidden_size": 4096, "intermediate_size": 13696, "num_attention_heads": 32,
                "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552, "max_position_embeddings": 8192},
    "starcoder2-3b": {"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288, "num_attention_heads": 24,
                      "num_key_value_heads": 2, "vocab_size": 49152, "sliding_window": None, "max_position_embeddings": 8192},
    "smollm3-3b": {"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
                   "num_key_value_heads": 4, "vocab_size": 128256, "max_position_embeddings": 8192, "pad_token_id": 128004},
    "ernie-21b-a3b": {"model_type": "ernie4_5_moe", "hidden_size": 2560, "intermediate_size": 12288, "num_attention_heads": 20,
                      "num_key_value_heads": 4, "vocab_size": 103424, "max_position_embeddings": 8192, "moe_num_experts": 64,
                      "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
                      "moe_layer_end_index": -1, "moe_layer_interval": 1, "tie_word_embeddings": True},
    # drawn at random on 2026-11-30, when the programs' code stood at 04838a6, of 36 families that no step had been measured of: the first six whose
    # class takes sdpa (random.Random("2026-11-30 04838a6"), gpt_neo does not), in released sizes
    "persimmon-8b": {"model_type": "persimmon", "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 64,
                     "vocab_size": 262144, "max_position_embeddings": 16384},
    "apertus-8b": {"model_type": "apertus", "hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "vocab_size": 131072, "max_position_embeddings": 65536},
    "biogpt": {"model_type": "biogpt", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "vocab_size": 42384,
               "max_position_embeddings": 8192},
    "command-r7b": {"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256000, "sliding_window": 4096,
                    "max_position_embeddings": 8192},
    "trinity-6b": {"model_type": "afmoe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 1408,
                   "num_dense_layers": 1, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 200192,
                   "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "sliding_window": 1024,
                   "max_position_embeddings": 16384},
    "lfm2-1.2b": {"model_type": "lfm2", "hidden_size": 2048, "intermediate_size": 12288, "num_attention_heads": 32,
                  "num_key_value_heads": 8, "vocab_size": 65536, "max_position_embeddings": 128000,
                  "layer_types": ["conv", "full_attention"]},
    **{f"gpt2-xl-{vocabulary}": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 2, "n_positions": 4096,
                                 "vocab_size": vocabulary, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
       for vocabulary in (50257, 50304)},
}  # fmt: skip
LAYERS, BATCH, SEQUENCE, SEQUENCES, CACHED, STATIC = 2, 2, 2048, 16, 2048, 4096
WAYS = [("eager", "prefill"), ("eager", "train"), ("eager", "decode"), ("compiled", "train"), ("compiled", "prefill"),
        ("compiled", "decode"), ("graph", "train"), ("graph", "prefill"), ("graph", "decode")]  # fmt: skip
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
             "wall_ms", "wall_low_ms", "wall_high_ms", "joules", "joules_low", "joules_high"]
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
    energy = report.step.energy
    return [
        report.calibration,
        mode,
        phase,
        *busy,
        f"{report.step.launches:.0f}",
        report.step.trust.name.lower(),
        *wall,
        *([f"{each:.4f}" for each in (energy.energy_j, energy.low_j, energy.high_j)] if energy else [""] * 3),
    ]


def measure(names: list[str], ways: list[tuple[str, str]], out: Path, budget_s: float, device: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    last = time.time() + budget_s
    with (
        (out / "steps.csv").open("w", newline="", encoding="utf-8") as file,
        (out / "kernels.csv").open("w", newline="", encoding="utf-8") as every,
    ):
        table, kernels = csv.writer(file, lineterminator="\n"), csv.writer(every, lineterminator="\n")
        table.writerow(
            ["model", "device", "mode", "phase", "wall_ms", "spread", "busy_ms", "kernels", "joules", "sustained_ms"]
        )
        kernels.writerow(["model", "mode", "phase", "kernel", "count", "us"])
        for name in names:
            for mode, phase, call in calls(name, ways, device):
                if time.time() > last:
                    print("out of time before", name, mode, phase)
                    return
                try:
                    row, of_each = timed(call, device)
                    row += joules(call) if phase != "decode" and mode != "graph" and device != "cpu" else ["", ""]
                except Exception as error:  # noqa: BLE001 - one way that does not run must not cost the others
                    print(name, mode, phase, "failed:", str(error)[:300].replace("\n", " "), flush=True)
                    continue
                table.writerow([name, name_of(device), mode, phase, *row])
                kernels.writerows([name, mode, phase, kernel, *cost] for kernel, cost in of_each.items())
                file.flush()
                print(
                    f"{name:13} {mode:9} {phase:8} wall {row[0]:>9} busy {row[2]:>9} ms, {row[3]:5} kernels {row[4]:>8} J",
                    flush=True,
                )


def name_of(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def calls(name: str, ways: list[tuple[str, str]], device: str) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Each way to run a model, set up when it is asked for."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

    wanted = {key: value for key, value in config_of(name).items() if key not in ("model_type", "torch_dtype")}
    config = AutoConfig.for_model(MODELS[name]["model_type"], **wanted)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    for (
        weight
    ) in model.parameters():  # routers that their class leaves at zero would send every token to the same experts
        if weight.dim() == 2 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02)
    ids = torch.randint(0, config.vocab_size - 1, (BATCH, SEQUENCE), device=device)
    token = torch.randint(0, config.vocab_size - 1, (SEQUENCES, 1), device=device)
    for mode, phase in ways:
        torch._dynamo.reset()
        how = {} if mode != "graph" else {"mode": "reduce-overhead"}
        run = model if mode == "eager" else torch.compile(model, dynamic=False, **how)
        model.train(phase == "train")
        cache: Any = None
        if phase == "decode":
            cache = DynamicCache(config=config) if mode == "eager" else StaticCache(config=config, max_cache_len=STATIC)
            length = CACHED if mode == "eager" else STATIC - STATIC // 40
            filled = torch.randint(0, config.vocab_size - 1, (SEQUENCES, length), device=device)
            with torch.no_grad():
                model(input_ids=filled, past_key_values=cache, use_cache=True, logits_to_keep=1)
        at = torch.full((SEQUENCES, 1), STATIC - STATIC // 80, device=device)

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
        del cache
        if device == "cuda":
            torch.cuda.empty_cache()


def timed(call: Callable[[], None], device: str) -> tuple[list[str], dict[str, list[Any]]]:
    """wall_ms, spread, busy_ms and kernels of a call, and the count and microseconds of each kernel."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        call()
    windows = []
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(5):
            call()
        wait()
        windows.append((time.perf_counter() - start) / 5 * 1e3)
    low, middle, high = sorted(windows)
    with profile(activities=[ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]) as trace:
        call()
        wait()
    kernels: dict[str, list[Any]] = {}
    for event in trace.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernel = kernels.setdefault(event.name, [0, 0.0])
            kernel[0] += 1
            kernel[1] = round(kernel[1] + event.time_range.elapsed_us(), 3)
    busy = sum(us for _, us in kernels.values()) / 1e3
    count = sum(many for many, _ in kernels.values())
    return [f"{middle:.4f}", f"{(high - low) / middle:.3f}", f"{busy:.4f}", str(count)], kernels


def joules(call: Callable[[], None], settle_s: float = 0.5, last_s: float = 1.2) -> list[str]:
    """Joules and milliseconds of a call, once power and clock have settled."""
    import pynvml
    import torch

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)

    def run(seconds: float) -> tuple[int, float]:
        start, many = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for _ in range(5):  # as a training loop does, which does not wait for each step
                call()
            torch.cuda.synchronize()
            many += 5
        return many, time.perf_counter() - start

    run(settle_s)
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    many, took = run(last_s)
    after = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    return [f"{(after - before) / 1e3 / many:.3f}", f"{1e3 * took / many:.4f}"]


def rehearse() -> None:
    """Tiny sizes, to see every way run without a GPU."""
    global BATCH, SEQUENCE, SEQUENCES, CACHED, STATIC
    BATCH, SEQUENCE, SEQUENCES, CACHED, STATIC = 1, 32, 2, 16, 80
    for shape in MODELS.values():
        small = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
                 "vocab_size": 512, "pad_token_id": 0, "moe_intermediate_size": 64, "n_embd": 128, "n_head": 4}  # fmt: skip
        shape |= {key: value for key, value in small.items() if key in shape or key == "pad_token_id"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "measure"])
    parser.add_argument("gpu", nargs="?", default="h100-sxm5-80gb")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--ways", default=",".join(map(":".join, WAYS)))
    parser.add_argument("--budget", type=float, default=500.0)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    names, ways = options.only.split(","), [tuple(way.split(":")) for way in options.ways.split(",")]
    if options.what == "predict":
        predict(options.gpu, names, ways, options.out)
    else:
        if options.device == "cpu":
            rehearse()
        measure(names, ways, options.out, options.budget, options.device)


if __name__ == "__main__":
    main()
