"""What scripts/research/measure_advice.py is to measure, with the predictions made beforehand: plan.json.

Pairs: six public architectures, the training step as it is and as advised (first free win, best re-shape). Regret: two base
shapes of one layer, each with neighbours drawn evenly from the candidates, the one advised among them.

    python scripts/research/plan_advice.py PLAN.json [--tiny]      (--tiny: small sizes, for a rehearsal on a CPU)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.advice import Advice, Kind
from tilewise.server.advise.asked import Asked, Changes, figures
from tilewise.server.advise.recommend import Neighbourhood, recommend
from tilewise.server.advise.reshapes import candidates
from tilewise.server.advise.subject import Subject
from tilewise.server.architecture.families import family
from tilewise.server.workload import Workload

GPU = "h100-sxm5-80gb"
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0, "hidden_dropout": 0.0}
# Public shape facts. What does not fit into 80 GB with AdamW's states at its real depth is cut to a few layers.
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "GPT-3 2.7B": (
        {"model_type": "gpt2", "n_embd": 2560, "n_layer": 32, "n_head": 32, "n_inner": 10240, "n_positions": 2048,
         "vocab_size": 50257}, 4,
    ),
    "Pythia 410M": (
        {"model_type": "gpt_neox", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
         "intermediate_size": 4096, "vocab_size": 50304, "max_position_embeddings": 2048}, 8,
    ),
    "Qwen2.5-7B, 6 layers": (
        {"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 6, "num_attention_heads": 28,
         "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False}, 2,
    ),
    "SmolLM-135M": (
        {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
         "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True}, 8,
    ),
    "Phi-3-mini": (
        {"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 32064, "sliding_window": None}, 2,
    ),
    "Qwen1.5-MoE-A2.7B, 4 layers": (
        {"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16,
         "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408, "num_experts": 60,
         "num_experts_per_tok": 4, "shared_expert_intermediate_size": 5632, "vocab_size": 151936,
         "tie_word_embeddings": False}, 4,
    ),
}  # fmt: skip
BASES: dict[str, tuple[dict[str, Any], int]] = {
    "llama, 4096 wide": (
        {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 1, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "tie_word_embeddings": False}, 2,
    ),
    "gpt_neox, 2560 wide": (
        {"model_type": "gpt_neox", "hidden_size": 2560, "num_hidden_layers": 1, "num_attention_heads": 32,
         "intermediate_size": 10240, "vocab_size": 50257, "max_position_embeddings": 2048}, 2,
    ),
}  # fmt: skip
NEIGHBOURS = 160
SEQUENCE = 2048
WIDE = 0.03  # of the parameters: neighbours of the regret runs


def as_config(config: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The config with canonical sizes replaced under the names that the family itself uses."""
    keys = family(config["model_type"]).keys
    names = {to[0]: name for name, to in keys.items() if len(to) == 1 and name in config}
    return {**NO_DROPOUT, **config, **{names.get(field, field): size for field, size in sizes.items()}}


def advised(gpu: Gpu, config: Mapping[str, Any], work: Workload) -> Advice:
    subject = Subject(json.dumps(config), {})
    cut = ("num_hidden_layers",) if config.get("num_hidden_layers", 32) < 12 else ()
    kinds = (Kind.FREE_WIN, Kind.RESHAPE)
    *_, advice = recommend(subject, [Asked(gpu, work)], Neighbourhood(keep=cut), kinds=kinds, results=100)
    assert isinstance(advice, Advice)
    return advice


def pair(gpu: Gpu, name: str, config: dict[str, Any], work: Workload) -> list[dict[str, Any]]:
    """The model as it is and as advised, each with its prediction."""
    advice = advised(gpu, config, work)
    time = advice.baseline[0].step.time
    assert time is not None
    shared = {"model": name, "batch": work.batch, "sequence": work.sequence}
    rows = [{**shared, "variant": "as it is", "changes": "", "config": as_config(config, {}), "predicted_s": time.time_s,
             "low_s": time.low_s, "high_s": time.high_s, "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0, "verdict": "", "cause": ""}]  # fmt: skip
    wins = [found for found in advice.recommendations if found.kind is Kind.FREE_WIN]
    shapes = sorted(
        (found for found in advice.recommendations if found.kind is Kind.RESHAPE), key=lambda found: found.score
    )
    for found in [*wins, *shapes[:1]]:
        sizes = {field: int(new) for field, _, new in found.changes}
        after = found.effects[0].after.step.time
        assert after is not None
        rows.append({**shared, "variant": found.kind.value, "changes": ", ".join(f"{f} {a} -> {b}" for f, a, b in found.changes),
                     "config": as_config(config, sizes), "predicted_s": after.time_s, "low_s": after.low_s, "high_s": after.high_s,
                     "ratio": found.score, "ratio_low": found.low, "ratio_high": found.high, "verdict": found.verdict.value,
                     "cause": found.cause})  # fmt: skip
    return rows


def neighbours(gpu: Gpu, name: str, config: dict[str, Any], work: Workload, number: int) -> list[dict[str, Any]]:
    """The base, candidates of a re-shape drawn evenly over the predicted score, and as many off the grid; depth stays."""
    subject, rng = Subject(json.dumps(config), {}), np.random.default_rng(7)
    fields = [field for field in subject.varied if field != "num_hidden_layers"]
    shapes = candidates(subject, fields, 1, WIDE, 100_000)
    every = off_grid(subject, {field: np.append(subject.sizes[field], values) for field, values in shapes.items()}, rng)
    found = figures(subject, [Asked(gpu, work)], every)
    times, parameters = found.time_s[0], found.parameters / subject.parameters
    score = times / times[0] / np.minimum(1.0, parameters)
    known = np.flatnonzero(np.isfinite(score))
    order = known[np.argsort(score[known])]
    drawn = np.unique(np.append(order[np.linspace(0, len(order) - 1, min(number, len(order))).astype(int)], 0))
    rows = []
    for at in drawn:
        sizes = {field: int(values[at]) for field, values in every.items()}
        rows.append({"base": name, "index": int(at), "batch": work.batch, "sequence": work.sequence,
                     "predicted_s": float(times[at]), "parameters": float(found.parameters[at]), "sizes": sizes,
                     "config": as_config(config, sizes)})  # fmt: skip
    return [rows[at] for at in rng.permutation(len(rows))]


def off_grid(subject: Subject, shapes: Changes, rng: np.random.Generator) -> Changes:
    """The shapes, and three times again with feed-forward width and vocabulary moved off their grid."""
    total = len(shapes["intermediate_size"])
    moved = {"intermediate_size": 64, "vocab_size": 128}
    whole = {"vocab_size": np.full(total, subject.sizes["vocab_size"]), **shapes}
    return {
        field: np.concatenate([values, *(values + rng.integers(0, moved.get(field, 1), total) for _ in range(3))])
        for field, values in whole.items()
    }


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """The same structure at sizes that a CPU runs in milliseconds."""
    small = {"n_layer": 2, "num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2}
    return {name: small[name] if name in small else max(value // 4, 2) if "_size" in name or name in ("n_embd", "n_inner") else value
            for name, value in config.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    gpu = Database.packaged().gpu(GPU)
    plan: dict[str, Any] = {
        "gpu": GPU,
        "calibration": gpu.calibration.id if gpu.calibration else "",
        "pairs": [],
        "neighbours": [],
    }
    for name, (config, batch) in MODELS.items():
        work = Workload(phase="train", batch=1 if options.tiny else batch, sequence=128 if options.tiny else SEQUENCE)
        plan["pairs"] += pair(gpu, name, shrunk(config) if options.tiny else config, work)
    for name, (config, batch) in BASES.items():
        work = Workload(phase="train", batch=1 if options.tiny else batch, sequence=128 if options.tiny else SEQUENCE)
        number = 5 if options.tiny else NEIGHBOURS
        plan["neighbours"].append(neighbours(gpu, name, shrunk(config) if options.tiny else config, work, number))
    options.plan.write_text(json.dumps(plan, indent=1))
    for row in plan["pairs"]:
        print(f"{row['model']:30} {row['variant']:9} {1e3 * row['predicted_s']:8.2f} ms  {row['ratio']:.3f} "
              f"({row['ratio_low']:.3f}-{row['ratio_high']:.3f}) {row['verdict']:12} {row['cause']:12} {row['changes']}")  # fmt: skip
    for rows in plan["neighbours"]:
        times = [1e3 * row["predicted_s"] for row in rows]
        print(f"{rows[0]['base']}: {len(rows)} shapes, predicted {min(times):.2f} to {max(times):.2f} ms")


if __name__ == "__main__":
    main()
