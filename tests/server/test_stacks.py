"""Stacks: what each program launches and keeps, what runs where nobody says, and what a program cannot do."""

import csv
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.table import Kind, Layout, OperatorTable, Phase
from tilewise.hwdb.times import Trust
from tilewise.server import stacks
from tilewise.server.architecture import Architecture, count, read, read_with
from tilewise.server.operators import build
from tilewise.server.operators.conventions import causal_flops
from tilewise.server.step.memory import memory
from tilewise.server.step.predict import predict, predict_many
from tilewise.server.workload import CHOICES, Workload

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "examples" / "llama-3-8b.json").read_text()
LLAMA = read(TEXT)
TRAINERS = ("torchtitan", "megatron")


@pytest.fixture(scope="module")
def h100() -> Gpu:
    return Database.packaged().gpu("h100-sxm5-80gb")


def train(stack: str, **options: object) -> Workload:
    return Workload(**{"phase": "train", "batch": 1, "sequence": 2048, "stack": stack, **options})  # type: ignore[arg-type]


def rows(table: OperatorTable, name: str, direction: str = "") -> OperatorTable:
    codes = [
        code for code, label in enumerate(table.labels) if label.name == name and direction in ("", label.direction)
    ]
    return table.select(np.isin(table.label, codes))


def attention(table: OperatorTable) -> OperatorTable:
    return table.select(table.kind == Kind.ATTENTION)


@pytest.mark.parametrize(
    ("asked", "stack", "mode"),
    [
        ({"phase": "train", "sequence": 8}, "transformers", "eager"),
        ({"phase": "prefill", "sequence": 8}, "vllm", "graph"),
        ({"phase": "decode", "context": 8}, "vllm", "graph"),
        ({"phase": "decode", "context": 8, "mode": "graph"}, "transformers", "graph"),
        ({"phase": "prefill", "sequence": 8, "attention_backend": "cudnn"}, "transformers", "eager"),
        ({"phase": "train", "sequence": 8, "stack": "torchtitan"}, "torchtitan", "compiled"),
    ],
)
def test_a_phase_has_a_program_where_nobody_names_one(asked: dict[str, object], stack: str, mode: str) -> None:
    work = Workload(**asked)  # type: ignore[arg-type]
    assert (work.stack, work.mode) == (stack, mode)


def test_decode_is_not_limited_by_a_cpu_where_nobody_names_a_program() -> None:
    asked = Workload(phase="decode", context=4096)
    rates = [
        predict(Database.packaged().gpu(name), LLAMA, asked, detailed=False).step.tokens_per_s
        for name in ("a100-sxm-80gb", "b200-sxm-180gb", "mi355x")
    ]
    assert rates[0] and rates[1] and rates[2]
    assert min(rates[1], rates[2]) > 2 * rates[0]


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"stack": "megatrn"}, "stack", "did you mean 'megatron'?"),
        ({"stack": "vllm"}, "stack", "that is run by transformers and torchtitan and megatron"),
        ({"stack": "torchtitan", "mode": "eager"}, "mode", "it is compiled, or unset"),
        ({"stack": "torchtitan", "recompute": "selective"}, "recompute", "it is none or full"),
        ({"stack": "torchtitan", "precision": "fp8"}, "precision", "it is bf16"),
        ({"stack": "torchtitan", "tensor_parallel": 2}, "tensor_parallel", "it is 1"),
        ({"stack": "megatron", "attention_backend": "flash"}, "attention_backend", "it is auto"),
        ({"reserve": 0.95}, "reserve", "0 to 0.9"),
        ({"reserve": math.nan}, "reserve", "0 to 0.9"),
    ],
)
def test_what_a_program_does_not_do_is_refused_in_one_line(asked: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Workload(**{"phase": "train", "sequence": 8, **asked})  # type: ignore[arg-type]
    assert error.value.field == f"workload.{field}" and words in error.value.message and "\n" not in error.value.message


@pytest.mark.parametrize("stack", TRAINERS)
def test_a_program_without_a_model_of_the_family_is_refused_with_those_it_has(stack: str) -> None:
    model = read((ROOT / "examples" / "gpt2.json").read_text())
    with pytest.raises(InvalidInput, match=r"models of type llama, .*, not 'gpt2'") as error:
        build(model, train(stack))
    assert error.value.reason == "STACK_WITHOUT_MODEL"


@pytest.mark.parametrize("stack", TRAINERS)
def test_attention_has_a_causal_flag_and_keeps_its_groups_where_transformers_has_a_mask(stack: str) -> None:
    ours, masked = (
        attention(build(LLAMA, train(stack))),
        attention(build(LLAMA, train("transformers", mode="compiled"))),
    )
    assert (ours.causal == 1).all() and (ours.kv_heads == 8).all()
    assert (masked.causal == 0).all() and (masked.kv_heads == 32).all()
    assert len(rows(build(LLAMA, train(stack)), "mask")) == 0


@pytest.mark.parametrize("stack", TRAINERS)
def test_every_program_does_the_same_model_flops(stack: str) -> None:
    ours, theirs = build(LLAMA, train(stack)), build(LLAMA, train("transformers"))
    # what rotates transformers' tables at each step is counted, and other programs keep the tables
    assert causal_flops(ours)[0] == pytest.approx(causal_flops(theirs)[0], rel=1e-6)


def test_torchtitan_casts_every_weight_before_both_passes_and_updates_in_fp32() -> None:
    table, parameters = build(LLAMA, train("torchtitan")), count(LLAMA).total
    casts = rows(table, "gather_cast", "forward")
    assert (casts.count * casts.cols).sum() == parameters
    again = rows(table, "gather_cast", "backward")
    assert (again.count * again.cols).sum() == parameters - 128_256 * 4096  # the head is kept
    (update,) = rows(table, "adamw").bytes_read
    assert update == 4 * 4 * parameters
    assert rows(table, "clip_scale").bytes_written[0] == 4 * parameters


def test_torchtitan_rotates_llama_by_complex_numbers_and_qwen_in_one_kernel() -> None:
    small = {"num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    qwen = json.dumps({"model_type": "qwen3", "vocab_size": 512, "intermediate_size": 512, "head_dim": 64, **small})
    counts = [len(rows(build(model, train("torchtitan")), "rope_q", "forward")) for model in (LLAMA, read(qwen))]
    assert counts == [3, 1]


def test_megatron_joins_products_and_adds_weight_gradients_up_in_fp32() -> None:
    table = build(LLAMA, train("megatron"))
    (forward,) = rows(table, "qkv_proj", "forward").n
    assert forward == 4096 + 2 * 1024 and len(rows(table, "gate_up_proj", "forward")) == 1
    products = table.select((table.kind == Kind.GEMM) & (table.layout == Layout.WEIGHT_GRADIENT))
    assert (products.output_bytes == 4).all()
    assert rows(table, "weight_copy").bytes_written[0] == 2 * count(LLAMA).total


@pytest.mark.parametrize("stack", TRAINERS)
def test_norms_of_queries_and_keys_run_in_every_program(stack: str) -> None:
    small = {"num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    qwen = read(
        json.dumps({"model_type": "qwen3", "vocab_size": 512, "intermediate_size": 512, "head_dim": 64, **small})
    )
    table = build(qwen, train(stack))
    assert len(rows(table, "q_norm", "forward")) == len(rows(table, "k_norm", "forward")) == 1


def test_megatrons_selective_recompute_runs_attention_twice_and_nothing_else() -> None:
    once, twice = (build(LLAMA, train("megatron", recompute=how)) for how in ("none", "selective"))
    added = twice.select(
        np.isin(twice.label, [at for at, one in enumerate(twice.labels) if one.direction == "recompute"])
    )
    assert (added.kind == Kind.ATTENTION).all() and (added.phase == Phase.FORWARD).all()
    assert len(twice) == len(once) + len(added) and len(added) == 1
    kept = [memory(LLAMA, train("megatron", recompute=how)).part("activations") for how in ("none", "selective")]
    assert kept[0] - kept[1] == 32 * 4 * 32 * 2048  # the statistics of the softmax, in every layer


@pytest.mark.parametrize(
    ("stack", "bytes_each"),
    [
        ("transformers", {"weights": 2, "optimizer_state": 4, "gradients": 2}),
        ("torchtitan", {"weights": 4, "optimizer_state": 8, "gradients": 4}),
        ("megatron", {"weights": 2, "master_weights": 4, "optimizer_state": 8, "gradients": 4}),
    ],
)
def test_memory_holds_weights_copies_moments_and_gradients_as_the_program_keeps_them(
    stack: str, bytes_each: dict[str, int]
) -> None:
    report, parameters = memory(LLAMA, train(stack)), count(LLAMA).total
    for name, each in bytes_each.items():
        assert report.part(name) == each * parameters, name
    assert sum(part.peak_bytes for part in report.parts) == report.total_bytes
    gathered = report.part("gathered_weights")
    assert (gathered > 0) == (stack == "torchtitan") and gathered < 2 * parameters


def test_a_step_fits_beside_the_reserve_alone(h100: Gpu) -> None:
    sizes = {"phase": "train", "sequence": 4096}
    kept, free = (predict(h100, LLAMA, Workload(**sizes, **more), detailed=False) for more in ({}, {"reserve": 0.0}))  # type: ignore[arg-type]
    assert kept.memory.total_bytes == free.memory.total_bytes
    assert free.fits and not kept.fits and "beside a reserve of 6%" in kept.headline
    assert kept.memory_room_bytes == pytest.approx(0.94 * h100.sku.memory_bytes)


def test_a_program_that_was_set_beside_two_steps_alone_has_a_wider_interval_and_says_so(h100: Gpu) -> None:
    report = predict(h100, LLAMA, train("torchtitan"), detailed=False)
    time, factor = report.step.time, stacks.stack("torchtitan").factor
    assert time is not None and factor > 1
    assert time.low_s < time.time_s / factor and time.high_s > time.time_s * factor
    assert any("set beside two measured steps alone" in note for note in report.notes)
    assert not any("set beside" in note for note in predict(h100, LLAMA, train("megatron")).notes)


def test_megatron_is_trusted_as_published_on_a_measured_gpu(h100: Gpu) -> None:
    assert predict(h100, LLAMA, train("megatron"), detailed=False).step.trust == Trust.PUBLISHED


@pytest.mark.parametrize("mode", ["compiled", "graph"])
def test_flash_is_refused_where_transformers_passes_a_mask(mode: str) -> None:
    with pytest.raises(InvalidInput, match="takes no mask, and transformers passes one") as error:
        build(LLAMA, train("transformers", mode=mode, attention_backend="flash"))
    assert error.value.field == "workload.attention_backend"


def test_flash_is_refused_in_eager_code_where_a_window_applies_and_answered_where_none_does() -> None:
    windowed = read(json.dumps({**json.loads(TEXT), "model_type": "mistral", "sliding_window": 512}))
    build(windowed, train("transformers", sequence=256, attention_backend="flash"))
    build(LLAMA, train("transformers", attention_backend="flash"))
    with pytest.raises(InvalidInput, match="in eager code with a window"):
        build(windowed, train("transformers", attention_backend="flash"))


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_cache_of_transformers_holds_no_more_than_the_window(mode: str) -> None:
    windowed = read(json.dumps({**json.loads(TEXT), "model_type": "mistral", "sliding_window": 512}))
    found = attention(build(windowed, Workload(phase="decode", context=4096, mode=mode)))
    assert (found.seq_kv == 512).all()


def test_a_full_static_cache_of_a_window_is_copied_twice_for_every_token() -> None:
    windowed = read(json.dumps({**json.loads(TEXT), "model_type": "mistral", "sliding_window": 512}))
    full, filling = (
        rows(build(windowed, Workload(phase="decode", batch=2, context=context, mode="graph")), "kv_roll")
        for context in (512, 511)
    )
    window = 2 * 512 * 8 * (128 + 128) * 2
    assert (full.count * full.bytes_written).sum() == 32 * 2 * window and len(filling) == 0


def test_torchtitan_leaves_an_odd_vocabulary_unpadded_since_its_head_is_not_compiled(h100: Gpu) -> None:
    odd, head = read_with(TEXT, {"vocab_size": 128_257}), "lm_head"
    ours, theirs = (
        predict(h100, odd, train(stack, mode="compiled")).operators for stack in ("torchtitan", "transformers")
    )
    assert any("128257 x" in row.shape for row in ours if row.name == head)
    assert not any("128257 x" in row.shape for row in theirs if row.name == head and row.direction == "backward")


def test_candidates_are_answered_as_one_by_one(h100: Gpu) -> None:
    widths = np.array([8192, 12288, 14336])
    for stack in TRAINERS:
        many = predict_many(h100, read_with(TEXT, {"intermediate_size": widths}), train(stack))
        alone = list(_alone(h100, stack, widths))
        assert many.steps.time_s == pytest.approx([each[0] for each in alone])
        assert many.memory.total_bytes == pytest.approx([each[1] for each in alone])


def _alone(gpu: Gpu, stack: str, widths: np.ndarray) -> Iterator[tuple[float, float]]:
    for width in widths.tolist():
        found = predict(gpu, _wide(width), train(stack), detailed=False)
        assert found.step.time is not None
        yield found.step.time.time_s, float(found.memory.total_bytes)


def _wide(width: int) -> Architecture:
    return read_with(TEXT, {"intermediate_size": width})


def test_every_stack_runs_a_phase_in_a_mode_and_says_what_it_was_read_off() -> None:
    for name in stacks.NAMES:
        known = stacks.stack(name)
        assert known.phases and known.modes and known.sources and 0 <= known.reserve < 0.5 and known.trust in Trust
    assert {stacks.default(phase) for phase in ("train", "prefill", "decode")} <= set(stacks.NAMES)


def test_the_steps_of_torchtitan_that_were_predicted_lay_in_their_intervals_when_measured() -> None:
    """predicted-torchtitan.csv was committed before steps-torchtitan.csv was measured."""
    folder = Path(__file__).resolve().parents[1] / "accuracy" / "measured" / "programs"
    predicted, measured = (
        list(csv.DictReader((folder / name).read_text(encoding="utf-8").splitlines()))
        for name in ("predicted-torchtitan.csv", "steps-torchtitan.csv")
    )
    before = {row["model"]: row for row in predicted if row["gpu"] == "h200-sxm-141gb"}
    assert len(measured) == 2
    for row in measured:
        wall, known = float(row["wall_ms"]), before[row["model"]]
        assert float(known["wall_low_ms"]) <= wall <= float(known["wall_high_ms"])
        assert abs(float(known["wall_ms"]) / wall - 1) < 0.03


@pytest.mark.parametrize("sku", Database.packaged().skus())
def test_every_gpu_answers_by_every_program_that_runs_on_it(sku: str) -> None:
    """Those of the same dies as another are answered by its kernels, an engine's too."""
    gpu, answered = Database.packaged().gpu(sku), 0
    for stack in CHOICES["stack"]:
        for phase in ("prefill", "decode"):
            with suppress(NotAvailable, InvalidInput):
                length = {"context": 512} if phase == "decode" else {"sequence": 512}
                time = predict(gpu, LLAMA, Workload(phase=phase, stack=stack, batch=2, **length)).step.time
                answered += time is not None
    assert answered >= 4
