"""Models of others' measurements: they answer for every GPU end to end, name whose kernels they hold for, widen what they carry."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels import roofline, transfer
from tilewise.hwdb.kernels.gemm import published as gemm
from tilewise.hwdb.kernels.grouped_gemm import published as grouped_gemm
from tilewise.hwdb.kernels.software import Origin, code, stated
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Layout, OperatorTable
from tilewise.hwdb.times import State, Trust
from tilewise.server.architecture import read
from tilewise.server.operators import build
from tilewise.server.operators.strides import stride_notes
from tilewise.server.workload import Workload

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ("a100-sxm-80gb", "b200-sxm-180gb", "b300-sxm-270gb", "gb200-186gb", "gb300-279gb", "h200-sxm-141gb",
             "mi300x", "mi355x")  # fmt: skip
WORKLOADS = (
    Workload(phase="prefill", sequence=2048),
    Workload(phase="decode", batch=16, context=4096),
    Workload(phase="train", sequence=4096, recompute="full"),
)


def published(sku: str) -> Gpu:
    """The GPU by its published calibration, also where a measured one has retired it."""
    database = Database.packaged()
    (id,) = (one for one in database.calibrations(sku) if database.trust(sku, one) is Trust.PUBLISHED)
    return database.gpu(sku, id)


def llama(workload: Workload) -> OperatorTable:
    return build(read((ROOT / "examples" / "llama-3-8b.json").read_text()), workload)


@pytest.mark.parametrize("sku", PUBLISHED)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.phase)
def test_every_operator_has_a_time_an_interval_and_a_trust_below_measured(sku: str, workload: Workload) -> None:
    gpu, table = published(sku), llama(workload)
    times = gpu.predict(table, workload.clock)
    assert not times.refused.any(), sorted(set(times.refusals))
    assert ((times.low_s > 0) & (times.low_s <= times.time_s) & (times.time_s <= times.high_s)).all()
    assert (times.trust < Trust.MEASURED).all()
    peaks = np.array([gpu.peak(Precision(int(p))).flops_per_s for p in table.precision])
    assert (np.maximum(table.flops, 1.0) / times.time_s <= 1.02 * peaks).all()


@pytest.mark.parametrize("sku", ["b200-sxm-180gb", "h200-sxm-141gb", "gb200-186gb"])
def test_forward_products_are_published_and_gradients_say_that_they_rest_on_less(sku: str) -> None:
    table = llama(WORKLOADS[2])
    times = published(sku).predict(table)
    products = table.kind == Kind.GEMM
    forward = products & (table.layout == Layout.FORWARD)
    assert (times.trust[forward] == Trust.PUBLISHED).all()
    assert (times.trust[products & ~forward] == Trust.DATASHEET).all()
    assert all("torch_linear" in times.kernel_names[kernel] for kernel in times.kernel[forward])


def test_a_carry_over_is_the_siblings_time_by_the_ratio_of_rooflines_less_what_that_misses() -> None:
    """Neither the bias nor the error is made up: both are what transfer.toml says of short, middling and long kernels."""
    database = Database.packaged()
    table = llama(WORKLOADS[0])
    rows = table.select(np.flatnonzero((table.kind == Kind.MEMORY) & (np.array(transfer.own(table)) == "")))
    there, sku = database.gpu("h100-sxm5-80gb"), database.sku("b200-sxm-180gb")
    carried, fitted = transfer.predict(rows, "h100-sxm5-80gb", sku, State.BURST), there.predict(rows)
    mine = fitted.trust == Trust.MEASURED
    assert mine.any()
    missed = carried.time_s / (fitted.time_s * transfer.ratios(rows, sku, there.sku))
    assert missed[mine] == pytest.approx(np.exp(-transfer.facts()["bias"]["memory"]["blackwell"]))
    added = transfer.unsure(["memory"] * len(rows), sku, carried.time_s)
    widened = np.hypot(np.log(fitted.high_s / fitted.time_s), added)
    assert np.log(carried.high_s / carried.time_s)[mine] == pytest.approx(widened[mine])
    assert (carried.trust[mine] == Trust.DATASHEET).all()


@pytest.mark.parametrize("sku", ["b200-sxm-180gb", "gb200-186gb"])
def test_a_training_steps_attention_and_norms_on_blackwell_rest_on_torchs_own_kernels(sku: str) -> None:
    """cuDNN's forward and backward, and norms, were timed on a GB200: an engine's kernel stands in for none of them."""
    gpu, table = Database.packaged().gpu(sku), llama(replace(WORKLOADS[2], mode="compiled"))
    times, words = gpu.predict(table), np.array(transfer.own(table))
    attention, norms = table.kind == Kind.ATTENTION, np.char.startswith(words, "norm")
    assert attention.any() and norms.any()
    assert (times.kernel[attention] < 0).all()
    assert (times.high_s / times.low_s)[attention].max() < 2 and (times.high_s / times.low_s)[norms].max() < 5
    long = (attention | norms) & (times.time_s > 5e-4)
    assert long.any() and (times.trust[long] == Trust.PUBLISHED).all()


def test_a_short_kernel_is_carried_to_another_generation_with_more_doubt_than_a_long_one() -> None:
    sku = Database.packaged().sku("b200-sxm-180gb")
    words = ["cudnn_forward", "cudnn_backward"]
    short, long = (transfer.unsure(words, sku, np.full(2, seconds)) for seconds in (1e-5, 1e-3))
    assert (short > 2 * long).all()


def test_a_measured_calibration_leaves_rows_that_name_an_engines_kernel_to_the_published_one() -> None:
    both, alone = Database.packaged().gpu("h200-sxm-141gb"), published("h200-sxm-141gb")
    name = next(Origin.of(one) for one in alone.calibration.model("gemm")["software"])  # type: ignore[union-attr]
    table = llama(WORKLOADS[0])
    products = table.kind == Kind.GEMM
    named = replace(table, library=np.where(products, both.library(Kind.GEMM, name), 0))
    times, torch, engine = both.predict(named), both.predict(table), alone.predict(named)
    assert (times.time_s[products] == engine.time_s[products]).all() and (times.time_s == torch.time_s)[~products].all()
    assert set(times.trust[products].tolist()) == {Trust.PUBLISHED, Trust.DATASHEET}  # the head is four octaves wider
    assert (times.trust[products & (times.distance < 1)] == Trust.PUBLISHED).all()
    assert (torch.trust[products] == Trust.MEASURED).all()


def test_without_a_sibling_the_roofline_answers() -> None:
    sku = Database.packaged().sku("mi300x")
    table = llama(WORKLOADS[0])
    rows = table.select(np.flatnonzero(table.kind == Kind.ATTENTION))
    found, rough = transfer.predict(rows, "", sku, State.BURST), roofline.predict(rows, {}, sku, State.BURST)
    assert found.time_s == pytest.approx(rough.time_s)


def test_a_sibling_of_the_same_generation_is_carried_with_less_doubt_than_one_of_another() -> None:
    database = Database.packaged()
    for word in ("gemm", "memory", "attention_forward", "grouped_gemm"):
        assert transfer.error(word, database.sku("h200-sxm-141gb")) < transfer.error(
            word, database.sku("b200-sxm-180gb")
        )


def test_a_row_of_a_table_states_engine_release_kernel_and_formats() -> None:
    found = stated("vllm 0.24.0; kernel CutlassFP8ScaledMMLinearKernel", "fp8")
    assert found == Origin(engine="vllm", release="0.24.0", kernel="CutlassFP8ScaledMMLinearKernel", formats=("fp8",))
    assert found.name == "vllm 0.24.0; CutlassFP8ScaledMMLinearKernel, fp8"
    latent = stated("trtllm 1.3.0rc20; default", "bf16", "fp8", phase="decode", latent=True)
    assert latent.name == "mla decode trtllm 1.3.0rc20; default, bf16/fp8" and latent.cached_bytes == 1
    library = stated("PyTorch (hipBLASLt)", "bf16")
    assert (library.engine, library.release, library.kernel) == ("PyTorch (hipBLASLt)", "", "")


def test_an_origin_multiplies_in_the_precision_of_its_format() -> None:
    formats = {"w4a16_mxfp4": Precision.BF16, "nvfp4": Precision.NVFP4, "int4_wo": Precision.BF16}
    for word, precision in formats.items():
        assert Origin(engine="x", formats=(word,)).multiplies == precision


def test_a_model_knows_an_origin_by_all_of_its_columns() -> None:
    model = Database.packaged().gpu("b200-sxm-180gb").calibration.model("gemm")  # type: ignore[union-attr]
    known = Origin(engine="sglang", release="0.5.14", kernel="sglang_torch_linear", formats=("bf16",))
    assert code(model, known) > 0
    assert code(model, replace(known, release="0.5.15")) == code(model, replace(known, formats=("fp8",))) == 0


def test_a_tuners_choice_is_one_origin_and_one_of_shuffled_weights_another() -> None:
    tuned = "aiter tuned, best kernel; ck"
    plain, shuffled = (stated(tuned, "fp8", path=path) for path in ("a8w8_tuned.csv", "a8w8_bpreshuffle_tuned.csv"))
    assert plain == stated("aiter tuned, best kernel; asm", "fp8") and plain.name == "aiter tuned best kernel, fp8"
    assert shuffled.name == "aiter tuned best kernel; shuffled weights, fp8" and shuffled != plain


def test_every_packaged_origin_is_read_back_as_it_was_written_and_named_apart() -> None:
    for gpu in map(Database.packaged().gpu, Database.packaged().skus()):
        for source in (gpu.calibration, gpu.published):
            for record in ("gemm", "attention", "grouped_gemm"):
                listed = [*source.model(record).get("software", ())] if source else []
                origins = [Origin.of(one) for one in listed]
                assert [one.entry(one.points) for one in origins] == listed
                assert len({one.name for one in origins}) == len(origins)


@given(m=st.integers(1, 1 << 17), step=st.sampled_from([0, 1, 64, 128, 256]))
def test_rows_are_padded_to_less_than_twice_and_powers_of_two_never(m: int, step: int) -> None:
    sizes = np.array([m, m + 1, 2.0 ** (m.bit_length() - 1)])
    found, more, power = gemm.padded(sizes, np.full(3, step))
    assert m <= found < 2 * m and found <= more
    assert power == sizes[2]
    assert step or found == m


@given(ranks=st.sampled_from([1, 2, 8, 32]), skew=st.floats(0, 2))
def test_the_busiest_rank_holds_its_share_at_least_and_all_rows_at_most(ranks: int, skew: float) -> None:
    (found,) = grouped_gemm.busiest(np.array([64.0 / ranks]), np.array([64.0]), np.array([skew]))
    assert 1 - 1e-9 <= found <= ranks + 1e-9
    assert skew > 0 or found == pytest.approx(1)


def test_b200_streams_faster_than_h200_although_its_serving_engine_did_not() -> None:
    """TensorRT-LLM#4043: the vendor's software, not the shape, made B200 slower than H200."""
    decode = Workload(phase="decode", batch=64, context=4096, mode="graph")
    busy = {sku: Database.packaged().gpu(sku).predict(llama(decode)) for sku in ("b200-sxm-180gb", "h200-sxm-141gb")}
    table = llama(decode)
    steps = {sku: float(table.count @ times.time_s) for sku, times in busy.items()}
    assert steps["b200-sxm-180gb"] < steps["h200-sxm-141gb"]


def test_mi300x_is_nowhere_near_its_fp8_peak() -> None:
    """ROCm/TransformerEngine#72: half of 2,614 TFLOPS is not to be promised; published ceilings are 1,015 to 1,273."""
    gpu = Database.packaged().gpu("mi300x")
    table = llama(Workload(phase="prefill", batch=8, sequence=4096, precision="fp8"))
    products = (table.kind == Kind.GEMM) & (table.precision == Precision.FP8)
    times = gpu.predict(table)
    rate = (table.flops / times.time_s)[products].max()
    assert 500e12 < rate < 1400e12


def test_rows_of_whole_512_bytes_are_pointed_out_on_cdna3_alone() -> None:
    architecture, workload = read((ROOT / "examples" / "llama-3-8b.json").read_text()), WORKLOADS[0]
    ((note,),) = stride_notes(architecture, workload, Database.packaged().sku("mi300x"))
    assert "4096, 14336 elements are a multiple of 512 bytes" in note and "128 longer" in note
    assert stride_notes(architecture, workload, Database.packaged().sku("b200-sxm-180gb")) == [{}]


def test_facts_that_decide_are_data() -> None:
    sku = Database.packaged().sku
    assert [sku(name).sm_count for name in ("b200-sxm-180gb", "gb200-186gb", "mi300x", "mi355x")] == [
        148,
        152,
        304,
        256,
    ]
    assert sku("mi300x").number("threads_per_warp") == 64 and sku("mi300x").last_level_bytes == 2**28
    assert sku("b200-sxm-180gb").last_level_bytes == sku("b200-sxm-180gb").l2_bytes
    for name in ("b200-sxm-180gb", "gb200-186gb", "b300-sxm-270gb"):
        assert sku(name).peaks["mxfp6"].value == sku(name).peaks["fp8"].value
    assert float(sku("b300-sxm-270gb").peaks["int8"].value) < 0.1 * float(sku("b200-sxm-180gb").peaks["int8"].value)
    assert sku("b300-sxm-270gb").exp_per_s == pytest.approx(2 * sku("b200-sxm-180gb").exp_per_s, rel=0.1)
    assert "FNUZ" in sku("mi300x").formats()[[f.split(" ")[0] for f in sku("mi300x").formats()].index("fp8")]
