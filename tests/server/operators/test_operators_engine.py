"""What a serving engine runs, and what its step rests on."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, NotAvailable, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels.engines import NONE, Kernel, best, kernels
from tilewise.hwdb.kernels.software import Origin, stated
from tilewise.hwdb.precision import NAMES
from tilewise.hwdb.table import Kind, Phase
from tilewise.hwdb.times import Trust
from tilewise.server.architecture import Architecture, read, read_with
from tilewise.server.operators import build
from tilewise.server.operators.conventions import causal_flops
from tilewise.server.step.memory import memory
from tilewise.server.step.predict import predict, predict_many
from tilewise.server.step.report import Operator, Report
from tilewise.server.workload import Workload

ROOT = Path(__file__).resolve().parents[3]
ENGINES = ("trtllm", "vllm", "sglang")
LLAMA = read((ROOT / "examples" / "llama-3-8b.json").read_text())
QWEN = read((ROOT / "examples" / "qwen3-30b-a3b.json").read_text())
MLA = read((ROOT / "tests" / "fixtures" / "configs" / "deepseek_like.json").read_text())


def gpu(name: str = "b200-sxm-180gb") -> Gpu:
    return Database.packaged().gpu(name)


def decode(engine: str, **options: object) -> Workload:
    sizes = {"batch": 16, "context": 2048, "precision": "nvfp4", **options}
    return Workload(phase="decode", stack=engine, **sizes)  # type: ignore[arg-type]


def step(arch: Architecture, workload: Workload, name: str = "b200-sxm-180gb") -> Report:
    report = predict(gpu(name), arch, workload)
    assert report.step.time is not None, report.step.refusal
    return report


def operators(report: Report) -> dict[str, Operator]:
    return {operator.name: operator for operator in report.operators}


@pytest.mark.parametrize("engine", ENGINES)
def test_products_attention_experts_and_reductions_are_the_engines_own_by_name(engine: str) -> None:
    found = operators(step(QWEN, decode(engine, tensor_parallel=2)))
    for name in ("qkv_proj", "o_proj", "experts", "all_reduce"):
        assert found[name].kernel.startswith(f"{engine} "), name
        assert found[name].trust == Trust.PUBLISHED
    assert found["attention"].kernel.startswith(f"decode {engine} ")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_mixture_is_a_router_a_choice_and_one_layer(engine: str) -> None:
    names = [name for name, one in operators(step(QWEN, decode(engine))).items() if one.part == "moe"]
    assert names == (["router", "experts"] if engine in ("trtllm", "vllm") else ["router", "router_topk", "experts"])


def test_q_k_and_v_are_one_product_and_gate_and_up_another() -> None:
    found = operators(step(LLAMA, decode("trtllm")))
    assert found["qkv_proj"].shape == "16 x 6144 x 4096" and found["gate_up_proj"].shape == "16 x 28672 x 4096"
    assert not {"q_proj", "k_proj", "gate_proj", "up_proj", "kv_append", "residual"} & found.keys()


def test_kv_heads_that_every_rank_holds_stay_whole_in_the_joined_product() -> None:
    found = operators(step(LLAMA, decode("vllm", tensor_parallel=16, precision="bf16")))
    assert found["qkv_proj"].shape == "16 x 512 x 4096"  # 2 heads of queries, one of keys and one of values


def latent(arch: Architecture) -> bool:
    return any(getattr(m, "latent", None) for stack in arch.stacks for block in stack.blocks for m in block.mixers)


@pytest.mark.parametrize("arch", [LLAMA, QWEN, MLA], ids=["dense", "experts", "latent"])
@pytest.mark.parametrize("phase", [{"phase": "prefill", "sequence": 512}, {"phase": "decode", "context": 512}])
def test_an_engine_does_the_same_model_flops_as_torch(arch: Architecture, phase: dict[str, object]) -> None:
    engine, torch = (Workload(batch=4, stack=name, **phase) for name in ("sglang", "transformers"))  # type: ignore[arg-type]
    kernels = gpu().kernels("sglang")
    if (
        phase["phase"] == "decode" and arch is MLA
    ):  # transformers expands every cached token, an engine reads the latent
        assert causal_flops(build(arch, engine, kernels)) < causal_flops(build(arch, torch))
    else:
        assert causal_flops(build(arch, engine, kernels)) == pytest.approx(causal_flops(build(arch, torch)))


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        (
            {"phase": "train", "sequence": 64},
            "stack",
            "runs prefill and decode, not train; that is run by transformers",
        ),
        ({"phase": "prefill", "sequence": 64, "mode": "eager"}, "mode", "it is graph, or unset"),
        ({"phase": "decode", "context": 64, "attention_backend": "flash"}, "attention_backend", "it is auto, or unset"),
        ({"phase": "decode", "context": 64, "stack": "vlm"}, "stack", "did you mean 'vllm'?"),
        (
            {"phase": "decode", "context": 64, "stack": "transformers", "kv_cache": "fp8"},
            "kv_cache",
            "stacks that serve",
        ),
        (
            {"phase": "decode", "context": 64, "stack": "transformers", "expert_skew": 1},
            "expert_skew",
            "stacks that serve",
        ),
        (
            {"phase": "decode", "context": 64, "stack": "transformers", "tensor_parallel": 2, "expert_parallel": 2},
            "expert_parallel",
            "stacks that serve",
        ),
        (
            {"phase": "decode", "context": 64, "tensor_parallel": 4, "expert_parallel": 3},
            "expert_parallel",
            "1, 2, 4 are",
        ),
        ({"phase": "decode", "context": 64, "expert_skew": float("nan")}, "expert_skew", "0 (even) to 2"),
        ({"phase": "decode", "context": 64, "expert_skew": "1"}, "expert_skew", "must be a number"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_in_one_line(options: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Workload(**{"stack": "vllm", **options})  # type: ignore[arg-type]
    assert error.value.field == f"workload.{field}" and words in error.value.message and "\n" not in error.value.message


def test_an_8_bit_cache_takes_half_of_the_memory_and_less_time() -> None:
    wide, narrow = (decode("trtllm", kv_cache=cache, context=32768) for cache in ("auto", "fp8"))
    assert memory(LLAMA, wide).part("kv_cache") == 2 * memory(LLAMA, narrow).part("kv_cache")
    found = [operators(step(LLAMA, each))["attention"] for each in (wide, narrow)]
    assert found[1].kernel.endswith("bf16/fp8") and found[1].time.time_s < 0.8 * found[0].time.time_s
    assert found[1].memory_bytes < 0.55 * found[0].memory_bytes


def test_an_attention_that_was_timed_with_the_rotation_is_not_charged_for_it_again() -> None:
    rotations = {engine: "rope_cache" in operators(step(LLAMA, decode(engine))) for engine in ENGINES}
    assert rotations == {"trtllm": False, "vllm": True, "sglang": True}
    assert "norm_rope" in operators(step(QWEN, decode("trtllm")))  # which leaves the norms of queries and keys


def test_a_time_that_holds_the_cast_of_its_input_has_no_cast_beside_it() -> None:
    assert "quantize" not in operators(step(LLAMA, decode("sglang", precision="fp8")))
    lacking = step(LLAMA, decode("vllm", precision="fp8"))
    assert "quantize" in operators(lacking)
    assert any("no kernel of vLLM was published here for fp8 products" in note for note in lacking.notes)


def test_trtllm_takes_its_low_latency_experts_up_to_128_tokens() -> None:
    kernels = {batch: operators(step(QWEN, decode("trtllm", batch=batch)))["experts"].kernel for batch in (128, 129)}
    assert "min_latency" in kernels[128] and "cutlass" in kernels[129]


def test_of_several_releases_the_newest_answers_and_of_its_kernels_the_preferred_one() -> None:
    names = ["vllm 0.9.2; vllm_fused_moe", "vllm 0.24.0; triton_old", "vllm 0.24.0; trtllm_new"]
    listed = [replace(stated(name, "bf16"), points=1000) for name in names]
    assert best("vllm", listed, ["bf16"]).code == 3
    assert best("vllm", listed, ["fp8", "bf16"], without="new").code == 2
    assert best("sglang", listed, ["bf16"]) == NONE
    assert best("vllm", [replace(listed[0], points=3)], ["bf16"]) == NONE  # too few points to answer for an engine


def test_every_published_gpu_has_kernels_of_every_engine_for_the_formats_of_its_experts() -> None:
    for name in ("b200-sxm-180gb", "gb200-186gb", "b300-sxm-270gb", "gb300-279gb", "h200-sxm-141gb"):
        for engine in ENGINES:
            known = gpu(name).kernels(engine)
            assert {NAMES["bf16"], NAMES["fp8_block"]} <= known.experts.keys(), (name, engine)
            assert len(known.attention) >= 3 and known.reduce(2) and known.reduce(4)


def test_a_measured_gpu_answers_by_its_own_models_and_says_whose_kernels_they_are_not() -> None:
    alone = replace(gpu("h100-sxm5-80gb"), published=None)
    report = predict(alone, QWEN, decode("vllm", precision="bf16", tensor_parallel=2))
    found = operators(report)
    assert {"gate_up_proj", "down_proj"} <= found.keys() and "experts" not in found
    assert found["all_reduce"].kernel == "vllm 0.24.0; all_reduce"
    note = next(note for note in report.notes if "no kernel of vLLM" in note)
    assert "bf16 products" in note and "attention with 16-bit cache" in note and "grouped products" in note


def test_every_real_architecture_answers_under_an_engine(configs: Path) -> None:
    refused = []
    for path in sorted((configs).glob("*/*.json")):
        for phase in ({"phase": "decode", "context": 1024}, {"phase": "prefill", "sequence": 256}):
            try:
                arch = read(path.read_text(encoding="utf-8"))
                asked = Workload(batch=4, stack="vllm", **phase)  # type: ignore[arg-type]
                torch = build(arch, Workload(batch=4, stack="transformers", mode="graph", **phase))
            except TilewiseError:
                continue  # which refuses without an engine, too
            done = causal_flops(build(arch, asked, gpu().kernels("vllm")))
            if phase["phase"] == "decode" and latent(arch):
                assert done <= causal_flops(torch) * (1 + 1e-9), path  # transformers expands every cached token
            else:
                assert done == pytest.approx(causal_flops(torch)), path
            report = predict(gpu(), arch, asked)
            refused += [f"{path.stem}: {report.step.refusal}"] if report.step.refusal else []
    assert not refused


def test_an_engine_that_does_not_run_on_a_gpu_is_refused_with_those_that_do() -> None:
    with pytest.raises(NotAvailable, match="TensorRT-LLM does not run on mi300x; stacks that do: vllm, sglang"):
        predict(gpu("mi300x"), LLAMA, decode("trtllm", precision="bf16"))


def test_a_gpu_without_any_engine_answers_and_says_so() -> None:
    report = step(LLAMA, decode("sglang", precision="bf16", tensor_parallel=2), "mi300x")
    assert any("all-reduce of 2 GPUs" in note for note in report.notes)


def test_latent_attention_answers_without_an_engines_kernel_and_says_so() -> None:
    report = step(MLA, decode("sglang", precision="bf16"), "mi300x")
    assert any("latent attention" in note for note in report.notes)


def test_latent_attention_runs_the_engines_own_kernel_where_it_was_published() -> None:
    small = json.loads((ROOT / "tests" / "fixtures" / "configs" / "deepseek_like.json").read_text())
    latent = read(json.dumps({**small, "kv_lora_rank": 512, "qk_rope_head_dim": 64}))  # DeepSeek's own
    report = step(latent, decode("sglang", precision="bf16"))
    assert not any("latent attention" in note for note in report.notes)
    assert operators(report)["attention"].kernel.startswith("mla decode sglang")


def test_a_measured_gpu_names_the_published_calibration_that_an_engines_kernels_rest_on() -> None:
    report = step(LLAMA, decode("trtllm", precision="fp8"), "h200-sxm-141gb")
    known = gpu("h200-sxm-141gb").published
    assert known is not None and any(known.id in note for note in report.notes)
    kernels = {operator.kind: operator.trust for operator in report.operators if "trtllm" in operator.kernel}
    assert set(kernels) == {"gemm", "attention"} and set(kernels.values()) == {Trust.PUBLISHED}


def test_a_published_latent_kernel_would_take_the_attention_row_with_its_rotation_and_cache() -> None:
    own = Origin(engine="trtllm", release="1.3.0rc20", kernel="default", phase="decode", latent=True, formats=())
    caches = [replace(own, formats=("bf16", stored)) for stored in ("bf16", "fp8")]
    listed = [one.entry(points=1000) for one in caches]
    known = kernels("trtllm", {Kind.ATTENTION: {"software": listed}}, "b200-sxm-180gb")
    assert known.latent == {
        (Phase.DECODE, fp8): Kernel(code, replace(caches[code - 1], points=1000))
        for fp8, code in ((False, 1), (True, 2))
    }
    rows = {}
    for cache in ("auto", "fp8"):
        table = build(MLA, decode("trtllm", precision="bf16", kv_cache=cache), known)
        names = np.array([label.name for label in table.labels])[table.label]
        attention = (names == "attention") & (table.kind == Kind.ATTENTION)
        rows[cache] = set(table.library[attention].tolist()), float(table.bytes_read[attention].sum())
        assert "qkv_a_proj" in names and not {"rope_cache", "rope_q", "kv_append"} & set(names.tolist())
    assert rows["auto"][0] == {1} and rows["fp8"][0] == {2} and rows["fp8"][1] < 0.6 * rows["auto"][1]


def test_sizes_beyond_what_was_published_are_answered_by_the_engines_kernel_less_surely_and_named() -> None:
    near, far = (
        step(LLAMA, Workload(phase="prefill", sequence=length, stack="trtllm", precision="fp8"))
        for length in (8192, 2**20)
    )
    assert not any("octaves" in note for note in near.notes)
    assert any("octaves" in note and "attention" in note for note in far.notes)
    attention, known = operators(far)["attention"], operators(near)["attention"]
    assert attention.kernel.startswith("forward trtllm") and attention.distance > 3
    assert attention.trust < known.trust
    assert attention.time.high_s / attention.time.low_s > known.time.high_s / known.time.low_s


def test_mxfp4_is_the_experts_format_and_the_peak_that_of_what_multiplies() -> None:
    report = step(QWEN, decode("vllm", precision="mxfp4"), "h200-sxm-141gb")  # which has no 4-bit units
    found = operators(report)
    assert found["experts"].kernel.endswith("w4a16_mxfp4") and found["experts"].precision == "bf16"
    assert found["qkv_proj"].precision == "bf16" and report.step.peak.tflops == pytest.approx(989.4, abs=0.1)


def test_all_but_the_experts_weights_stay_in_16_bit_under_mxfp4() -> None:
    counted = {name: memory(QWEN, decode("vllm", precision=name)).part("weights") for name in ("bf16", "mxfp4")}
    experts = 48 * 128 * 3 * 768 * 2048
    assert counted["bf16"] - counted["mxfp4"] == pytest.approx(experts * (2 - 0.53125))


def test_fewer_distinct_experts_are_read_where_tokens_are_uneven() -> None:
    even, uneven = (step(QWEN, decode("sglang", expert_skew=skew)) for skew in (0.0, 1.2))
    assert operators(uneven)["experts"].time.time_s < operators(even)["experts"].time.time_s


@pytest.mark.parametrize("name", ["b200-sxm-180gb", "h100-sxm5-80gb"])
def test_a_skew_changes_what_is_read_for_one_shape_and_for_many(name: str) -> None:
    even, asked = (decode("vllm", precision="bf16", expert_skew=skew) for skew in (0.0, 1.2))
    text = (ROOT / "examples" / "qwen3-30b-a3b.json").read_text()
    moved = [step(QWEN, each, name).step.memory_bytes for each in (even, asked)]
    assert moved[1] < 0.8 * moved[0]
    counts = np.array([64, 128])
    many = predict_many(gpu(name), read_with(text, {"num_experts": counts}), asked).steps
    assert many.memory_bytes[1] == pytest.approx(moved[1]) and many.memory_bytes[0] < many.memory_bytes[1]


def test_ranks_share_out_experts_or_divide_their_width() -> None:
    shapes = {
        ranks: operators(step(QWEN, decode("trtllm", tensor_parallel=4, expert_parallel=ranks)))["experts"].shape
        for ranks in (1, 2, 4)
    }
    assert shapes == {
        1: "128 rows over 128 experts x 192 x 2048",
        2: "64 rows over 64 experts x 384 x 2048",
        4: "32 rows over 32 experts x 768 x 2048",
    }


def test_whole_experts_fill_blocks_that_a_shard_of_their_width_would_not() -> None:
    asked = {"precision": "fp8_block", "tensor_parallel": 4}
    with pytest.raises(InvalidInput, match="192 of 768 on each rank"):
        build(QWEN, decode("vllm", **asked))
    build(QWEN, decode("vllm", **asked, expert_parallel=4))
    with pytest.raises(InvalidInput, match="num_experts 130 cannot be split over expert_parallel 4: 130 allows 1, 2"):
        odd = read_with((ROOT / "examples" / "qwen3-30b-a3b.json").read_text(), {"num_experts": 130})
        build(odd, decode("vllm", **asked, expert_parallel=4))


def test_deepseeks_own_576_outputs_pass_where_every_rank_holds_them_whole(
    config: Callable[[str], Architecture],
) -> None:
    arch = config("deepseek/DeepSeek-V3")
    build(arch, Workload(phase="decode", context=64, precision="fp8_block", tensor_parallel=8))
    with pytest.raises(InvalidInput, match="576 of 576"):  # the input gradient contracts over them
        build(arch, Workload(phase="train", sequence=64, precision="fp8_block"))


def test_without_an_engine_nothing_is_named_and_no_note_is_added() -> None:
    report = predict(gpu(), QWEN, Workload(phase="decode", context=2048, stack="transformers"))
    assert not report.table.library.any() and not any("engine" in note for note in report.notes)


def test_many_candidates_are_answered_as_one_by_one() -> None:
    widths = np.array([1024, 4096, 12288])
    text = (ROOT / "examples" / "llama-3-8b.json").read_text()
    many = predict_many(gpu(), read_with(text, {"intermediate_size": widths}), decode("trtllm")).steps
    single = [step(read_with(text, {"intermediate_size": int(w)}), decode("trtllm")).step for w in widths]
    assert many.time_s == pytest.approx([each.time.time_s for each in single if each.time])


SIZES = st.integers(0, 8).map(lambda octave: 2**octave)


@settings(max_examples=30, deadline=None)
@given(
    engine=st.sampled_from(ENGINES), batch=SIZES, context=st.sampled_from((512, 2048, 8192)),
    precision=st.sampled_from(("bf16", "fp8_block", "nvfp4")), dense=st.booleans(),
)  # fmt: skip
def test_a_step_is_the_sum_of_its_operators_and_more_tokens_are_never_faster(
    engine: str, batch: int, context: int, precision: str, dense: bool
) -> None:
    arch = LLAMA if dense else QWEN
    asked = decode(engine, batch=batch, context=context, precision=precision)
    few, many = step(arch, asked), step(arch, decode(engine, batch=2 * batch, context=context, precision=precision))
    for report in (few, many):
        assert report.step.time is not None
        total = sum(operator.total_s for operator in report.operators)
        assert report.step.busy.time_s == pytest.approx(total)
        assert report.step.time.time_s == pytest.approx(max(total + report.step.gap_s, report.step.issue_s))
    assert few.step.time is not None and many.step.time is not None
    assert many.step.time.time_s > 0.93 * few.step.time.time_s  # kernels change with the size, and nets err by a few %
