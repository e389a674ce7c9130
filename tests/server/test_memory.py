"""Resident memory: user-cases G21-G28 and the allocator's own figures."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewise.server.architecture import Architecture, count, read, read_with
from tilewise.server.operators.plan import Plan
from tilewise.server.step.memory import kv_bytes_per_token, memory
from tilewise.server.workload import Workload

Config = Callable[[str], Architecture]
Llama = Callable[..., Architecture]
GIB, MIB = 2**30, 2**20


def decode(context: int, **options: object) -> Workload:
    return Workload(phase="decode", batch=1, context=context, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("llama/Meta-Llama-3.1-8B", 131_072),  # G21
        ("llama/Meta-Llama-3.1-70B", 327_680),
        ("mistral/Mistral-Nemo-Base-2407", 2 * 40 * 8 * 128 * 2),  # G22: head_dim 128, not 5120 / 32
        ("qwen3/Qwen3-0.6B", 2 * 28 * 8 * 128 * 2),
        ("deepseek/DeepSeek-V3", 70_272),  # G23
    ],
)
def test_kv_cache_of_a_token_follows_kv_heads_and_head_dim(config: Config, name: str, bytes_per_token: int) -> None:
    assert memory(config(name), decode(32768)).kv_cache_bytes_per_token == bytes_per_token


def test_kv_cache_of_llama_3_8b_at_32k_is_4_gib(config: Config) -> None:
    assert memory(config("llama/Meta-Llama-3.1-8B"), decode(32768)).part("kv_cache") == 4 * GIB


def test_windowed_layers_cap_their_cache(config: Config) -> None:
    gemma = config("gemma/gemma-3-1b-it")  # G23
    assert memory(gemma, decode(32768)).part("kv_cache") == 139 * MIB
    assert kv_bytes_per_token(gemma, Plan.of(decode(32768))) * 32768 == 832 * MIB


def test_beyond_the_windows_a_token_adds_to_the_full_layers_alone(config: Config) -> None:
    gemma = config("gemma/gemma-3-1b-it")  # 22 of 26 layers have a window of 512
    short, longer = (memory(gemma, decode(context)) for context in (32768, 32769))
    assert longer.part("kv_cache") - short.part("kv_cache") == short.kv_cache_bytes_per_later_token == 4 * 2 * 256 * 2
    near, nearer = (memory(gemma, decode(context)).part("kv_cache") for context in (100, 101))
    assert nearer - near == short.kv_cache_bytes_per_token


def test_keys_that_stand_for_several_tokens_add_their_share(config: Config) -> None:
    deepseek = config("deepseek/DeepSeek-V4-Flash")
    short, longer = (memory(deepseek, decode(context)) for context in (131072, 131072 + 128))
    added = longer.part("kv_cache") - short.part("kv_cache")
    assert added / 128 == pytest.approx(short.kv_cache_bytes_per_later_token, abs=1)
    assert short.kv_cache_bytes_per_later_token < short.kv_cache_bytes_per_token / 5


def test_logits_have_a_line_of_their_own(llama: Llama) -> None:
    report = memory(llama(), Workload(phase="train", batch=1, sequence=81_920, recompute="full"))  # G24
    assert report.part("logits") == 81_920 * 128_256 * 2
    assert report.part("logits") / GIB == pytest.approx(19.57, abs=0.005)
    assert report.part("logits_fp32") == 3 * 2 * report.part("logits")


def test_gb_and_gib_are_not_the_same(llama: Llama) -> None:
    report = memory(llama(vocab_size=248_320), Workload(phase="prefill", batch=1, sequence=11_600, logits="all"))  # G25
    fp32 = 2 * report.part("logits")
    assert fp32 / 1e9 == pytest.approx(11.5, abs=0.05) and fp32 / GIB == pytest.approx(10.7, abs=0.05)


def test_expert_sizes_move_the_activations(llama: Llama) -> None:
    def activations(**keys: int) -> float:  # G26
        text = {"model_type": "qwen3_moe", "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
                "head_dim": 128, "num_hidden_layers": 4, "vocab_size": 1000, "num_experts": 16, "num_experts_per_tok": 2,
                "moe_intermediate_size": 256, "intermediate_size": 512, **keys}  # fmt: skip
        return float(
            memory(read(json.dumps(text)), Workload(phase="train", batch=1, sequence=1024)).part("activations")
        )

    assert activations(moe_intermediate_size=512) > activations()
    assert activations(num_experts_per_tok=4) > 1.2 * activations()


def test_a_7b_shape_on_eight_ranks_takes_about_what_nvidia_smi_showed(llama: Llama) -> None:
    shape = llama(intermediate_size=10_880, num_key_value_heads=32, vocab_size=50_304)  # G27: 21 GB
    report = memory(shape, Workload(phase="train", batch=1, sequence=4096, tensor_parallel=8))
    adam_fp32 = 12 * (report.part("weights") / 2)  # their optimizer holds fp32 master, momentum and variance
    ours = report.total_bytes - report.part("optimizer_state") + adam_fp32
    assert ours / 1e9 == pytest.approx(21, rel=0.2)


def test_a_large_model_on_a_short_sequence_peaks_in_the_optimizer_step(llama: Llama) -> None:
    short, long = (memory(llama(), Workload(phase="train", batch=1, sequence=n)) for n in (128, 16384))  # G28
    assert short.peak_moment == "optimizer step" and long.peak_moment == "loss"


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_parts_alive_at_the_peak_add_up_to_the_total(llama: Llama, phase: str) -> None:
    length = {"context": 4096} if phase == "decode" else {"sequence": 4096}
    report = memory(llama(), Workload(phase=phase, batch=2, **length))  # type: ignore[arg-type]
    assert sum(part.peak_bytes for part in report.parts) == report.total_bytes


def test_a_tied_table_is_held_once(config: Config) -> None:
    model = config("qwen3/Qwen3-0.6B")  # G16
    assert memory(model, decode(128)).part("weights") == 2 * count(model).total


def test_serving_in_fp8_halves_the_linear_layers_alone(llama: Llama) -> None:
    wide, narrow = (memory(llama(), decode(128, precision=name)).part("weights") for name in ("bf16", "fp8"))
    tables = 2 * 2 * 128_256 * 4096  # embedding and lm_head keep 16 bits
    assert narrow == pytest.approx((wide - tables) / 2 + tables, rel=1e-3)


def test_recompute_trades_activations_for_a_checkpoint_a_layer(llama: Llama) -> None:
    none, selective, full = (
        memory(llama(), Workload(phase="train", batch=1, sequence=4096, recompute=how)).part("activations")
        for how in ("none", "selective", "full")
    )
    assert full < selective < none
    assert full == pytest.approx(32 * 4096 * 4096 * 2, rel=0.2)


def test_many_shapes_have_the_memory_of_each(llama: Llama) -> None:
    text = {"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4,
            "intermediate_size": 2048, "vocab_size": 32000}  # fmt: skip
    workload, sizes = Workload(phase="train", batch=1, sequence=512), np.array([2048, 4096, 8192])
    together = memory(read_with(json.dumps(text), {"intermediate_size": sizes}), workload).total_bytes
    alone = [memory(read(json.dumps({**text, "intermediate_size": int(n)})), workload).total_bytes for n in sizes]
    np.testing.assert_allclose(together, alone, rtol=2e-3)


def test_training_peaks_agree_with_torchs_allocator(shared: Path) -> None:
    table = shared / "truth" / "h100" / "hf_transformers_train_memory.csv"
    errors = []
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        text = (shared / "truth" / "h100" / "configs" / f"{row['model']}.json").read_text(encoding="utf-8")
        workload = Workload(
            phase="train",
            batch=int(row["b"]),
            sequence=int(row["s"]),
            recompute=("none", "full")[int(row["recompute"])],
        )
        peak = memory(read_with(text, {"num_hidden_layers": int(row["layers"])}), workload).total_bytes
        errors.append(abs(float(peak) / MIB / float(row["peak_step_MiB"]) - 1))
    assert np.mean(errors) < 0.01 and max(errors) < 0.03


def test_a_vision_encoder_peaks_in_its_backward_before_any_gradient_is_there(config: Config) -> None:
    arch = config("vit/vit-base-patch16-224-from-class-default")
    report = memory(arch, Workload(phase="train", batch=64, sequence=512))
    alive = {part.name: part.peak_bytes for part in report.parts}
    assert report.peak_moment == "backward" and alive["gradients"] == 0
    assert alive["activations"] > report.part("activations")
