"""Questions far from every measurement: answered with their distance and a wide interval, not refused; the farther, the less sure."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Label, kernel_codes, table_from_columns
from tilewise.hwdb.times import Times, Trust
from tilewise.server.architecture import Architecture, read
from tilewise.server.operators import build
from tilewise.server.step.predict import predict
from tilewise.server.workload import Workload

H100 = Database.packaged().gpu("h100-sxm5-80gb")
ROOT = Path(__file__).resolve().parents[3]
Config = Callable[[str], Architecture]


def rows_of(op: str, rows: float, cols: float) -> Times:
    code, variant = kernel_codes(op)
    size = np.array([2.0 * rows * cols])
    columns = {"kind": int(Kind.MEMORY), "op": code, "variant": variant, "precision": int(Precision.BF16), "cols": cols}
    full = {name: np.array([value]) for name, value in {**columns, "rows": rows}.items()}
    table = table_from_columns(
        [Label(name="x", layer="", part="")], 1, 1, {**full, "bytes_read": size, "bytes_written": size}
    )
    return H100.predict(table)


def test_experts_train_on_any_number_of_tokens() -> None:
    """The router's weight gradient of 49,152 tokens was refused, and the whole step with it."""
    moe = read((ROOT / "examples" / "qwen3-30b-a3b.json").read_text())
    for tokens in (4096, 49152, 65536):
        step = predict(H100, moe, Workload(phase="train", batch=1, sequence=tokens)).step
        assert step.time is not None, step.refusal


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["deepseek/DeepSeek-V4-Flash", "glm/GLM-5"])
def test_sparse_attention_has_a_time_at_every_length(config: Config, name: str, phase: str) -> None:
    arch, field = config(name), "context" if phase == "decode" else "sequence"
    for length in (128, 2048, 10_000, 65_536, 262_144):
        step = predict(H100, arch, Workload(phase=phase, batch=1, **{field: length})).step  # type: ignore[arg-type]
        assert step.time is not None, step.refusal


def test_a_prompt_of_ten_million_tokens_is_no_measured_one_and_says_how_far_it_lies(
    llama: Callable[..., Architecture],
) -> None:
    near, far = (
        predict(H100, llama(), Workload(phase="prefill", sequence=length, stack="transformers"))
        for length in (8192, 10_000_000)
    )
    assert near.step.trust is Trust.MEASURED and far.step.trust is Trust.DATASHEET
    assert far.step.distance > 5 and near.step.distance < 1
    assert any("octaves beyond the nearest measurement" in note and "attention" in note for note in far.notes)
    assert not any("octaves" in note for note in near.notes)
    wide, narrow = far.step.time, near.step.time
    assert wide is not None and narrow is not None
    assert wide.high_s / wide.low_s > narrow.high_s / narrow.low_s


def test_nothing_between_two_answered_sizes_is_refused(llama: Callable[..., Architecture]) -> None:
    """2**18 rows were refused, 2**19 to 2**27 answered."""
    times = [
        predict(H100, llama(), Workload(phase="prefill", batch=2**n, sequence=2048, stack="transformers")).step.time
        for n in range(17)
    ]
    assert all(time is not None for time in times)


def test_a_kernels_distance_is_its_own_and_not_that_of_others_of_its_class() -> None:
    """Inductor's layernorm was timed from 768 columns on; of 128 it said 0.00, as other norms were."""
    narrow, wide = (rows_of("layernorm.compiled", 2**23 / cols, cols) for cols in (128, 4096))
    assert narrow.distance[0] > 0.5 > wide.distance[0]
    assert narrow.high_s[0] / narrow.low_s[0] > wide.high_s[0] / wide.low_s[0]


def test_an_indexers_scores_are_a_product_for_every_sequence(config: Config) -> None:
    """DeepSeek V4 on 32 sequences of 65,536 keys: taken as one product it moved 9.7 TB/s on an H100."""
    table = build(config("deepseek/DeepSeek-V4-Flash"), Workload(phase="decode", batch=32, context=65536))
    names = np.array([label.name for label in table.labels])[table.label]
    scores = table.select(names == "indexer_scores")
    assert (scores.groups == 32).all()
    assert (scores.groups * scores.n * scores.k * 2.0 <= scores.bytes_read).all()
    moved = scores.bytes_read + scores.bytes_written
    assert (moved / H100.predict(scores).time_s < H100.sku.hbm_bytes_per_s).all()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engines_fp32_cache_is_read_in_four_bytes_by_no_kernel_of_two(
    llama: Callable[..., Architecture], engine: str
) -> None:
    asked = Workload(phase="decode", batch=64, context=8192, precision="fp32", stack=engine)
    report = predict(H100, llama(), asked)
    attention = next(one for one in report.operators if one.name == "attention")
    assert attention.memory_bytes / attention.time.time_s < H100.sku.hbm_bytes_per_s
    assert not attention.kernel and report.step.mbu is not None and report.step.mbu < 1


def test_a_dense_model_in_mxfp4_is_over_the_peak_that_it_multiplies_at() -> None:
    b200 = Database.packaged().gpu("b200-sxm-180gb")
    dense = read(json.dumps(json.loads((ROOT / "examples" / "llama-3-8b.json").read_text())))
    asked = Workload(phase="prefill", batch=8, sequence=8192, precision="mxfp4", stack="vllm")
    step = predict(b200, dense, asked).step
    assert step.peak.key == "mxfp4" and step.mfu is not None and 0.1 < step.mfu < 1


def test_a_head_that_is_faster_in_16_bit_than_int8_layers_are_is_over_its_own_peak() -> None:
    gb300 = Database.packaged().gpu("gb300-279gb")  # 330 int8 TOPS beside 2,500 bf16 TFLOPS
    dense = read((ROOT / "examples" / "llama-3-8b.json").read_text())
    report = predict(gb300, dense, Workload(phase="prefill", batch=256, sequence=2048, precision="int8", logits="all"))
    assert all(layer.mfu is None or layer.mfu <= 1 for layer in report.layers)
