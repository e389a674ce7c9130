"""Attention by others' measurements, where nobody measured: short sequences, windows, latent caches, an engine's own choices."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels.attention import decode, latent, window
from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.software import Origin, Software, stated
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Label, OperatorTable, Phase, table_from_columns
from tilewise.hwdb.times import State, Times, Trust

ENGINES = {
    "a100-sxm-80gb": ("vllm 0.14.0; vllm_flash_attn", "trtllm 1.0.0; torch_flow"),
    "h200-sxm-141gb": ("sglang 0.5.14; fa3", "trtllm 1.3.0rc20; torch_flow"),
    "b200-sxm-180gb": ("sglang 0.5.14; trtllm_mha", "trtllm 1.3.0rc20; torch_flow"),
}
NAMED = [(sku, engine) for sku, engines in ENGINES.items() for engine in engines]
UNEVEN = 1.25  # of neighbouring sizes: tables are that rough where kernels change


def attention(phase: Phase, library: int = 0, **sizes: Any) -> OperatorTable:
    """Rows of bf16 attention; a size that is left out is Llama's."""
    wanted = {"batch": 4, "heads": 32, "kv_heads": 8, "head_dim": 128, "seq_kv": 2048} | sizes
    wanted["seq_q"] = wanted.get("seq_q", 1 if phase == Phase.DECODE else wanted["seq_kv"])
    wanted["head_dim_v"] = wanted.get("head_dim_v", wanted["head_dim"])
    fixed = {"kind": int(Kind.ATTENTION), "phase": int(phase), "library": library, "precision": int(Precision.BF16)}
    fixed |= {"causal": int(phase == Phase.FORWARD)}
    length = max(np.size(value) for value in wanted.values())
    columns = {name: np.broadcast_to(value, length).copy() for name, value in (wanted | fixed).items()}
    return table_from_columns([Label(name="x", layer="", part="")], 1, length, columns)


def gpu_and_code(sku: str, engine: str, phase: Phase, formats: str = "bf16/bf16") -> tuple[Gpu, int]:
    gpu = Database.packaged().gpu(sku)
    code = gpu.library(Kind.ATTENTION, stated(engine, *formats.split("/"), phase=phase.name.lower()))
    assert code
    return gpu, code


def asked(sku: str, engine: str, phase: Phase, **sizes: Any) -> Times:
    gpu, code = gpu_and_code(sku, engine, phase)
    return gpu.predict(attention(phase, code, **sizes), State.BURST)


@settings(max_examples=30, deadline=None)
@given(
    named=st.sampled_from(NAMED),
    phase=st.sampled_from([Phase.FORWARD, Phase.DECODE]),
    heads=st.sampled_from([(8, 8), (32, 8), (32, 4), (64, 8)]),
    batch=st.integers(0, 6),
    keys=st.integers(4, 13),
)
def test_more_sequences_and_more_keys_take_no_less_time_by_one_kernel(
    named: tuple[str, str], phase: Phase, heads: tuple[int, int], batch: int, keys: int
) -> None:
    gpu, code = gpu_and_code(*named, phase)
    batches, lengths = 2 ** np.array([batch, batch + 1, batch]), 2 ** np.array([keys, keys, keys + 1])
    table = attention(phase, code, batch=batches, seq_kv=lengths, heads=heads[0], kv_heads=heads[1])
    times = gpu.predict(table, State.BURST)
    kernel = masked_rows(table, named[0], stated(named[1], "bf16", "bf16", phase="decode"))
    for larger in (1, 2):
        if np.isfinite(times.distance).all() and kernel[larger] == kernel[0]:
            assert times.time_s[0] <= UNEVEN * times.time_s[larger]


def masked_rows(table: OperatorTable, sku: str, origin: Origin) -> Any:
    """Which rows TensorRT-LLM gives to its masked kernel; none of another engine's."""
    which = np.zeros(len(table), np.int64)
    return decode.masked(table, Chip.of([Database.packaged().sku(sku)], which), Software.listed([origin]), which)


@settings(max_examples=30, deadline=None)
@given(
    named=st.sampled_from(NAMED), batch=st.integers(0, 9), keys=st.integers(7, 17),
    heads=st.sampled_from([(8, 8), (32, 8), (32, 4), (64, 8)]), width=st.sampled_from([128]),
)  # fmt: skip
def test_no_decode_reads_its_cache_faster_than_the_memory_delivers(
    named: tuple[str, str], batch: int, keys: int, heads: tuple[int, int], width: int
) -> None:
    sku = Database.packaged().sku(named[0])
    moved = 2.0 * 2 * 2**batch * 2**keys * heads[1] * width
    times = asked(
        *named, Phase.DECODE, batch=2**batch, seq_kv=2**keys, heads=heads[0], kv_heads=heads[1], head_dim=width
    )
    if moved > 2 * sku.l2_bytes and np.isfinite(times.distance[0]):
        assert times.high_s[0] >= times.time_s[0] >= (1 - 1e-9) * moved / sku.hbm_bytes_per_s


@pytest.mark.parametrize(("sku", "engine"), NAMED)
def test_no_forward_multiplies_faster_than_the_peak(sku: str, engine: str) -> None:
    keys = np.array([64, 512, 4096, 16384, 65536])
    times = asked(sku, engine, Phase.FORWARD, seq_kv=keys, batch=1)
    flops = 4.0 * 32 * 128 * keys.astype(float) ** 2 / 2
    assert (flops / times.time_s <= Database.packaged().sku(sku).peaks["bf16"].value).all()


@pytest.mark.parametrize(("sku", "engine"), NAMED)
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.DECODE])
def test_sequences_shorter_than_every_timed_one_are_answered_near_the_shortest(
    sku: str, engine: str, phase: Phase
) -> None:
    """Launch and one tile are most of such a time: it falls little, never under the launch, and is less sure."""
    keys = np.array([2, 8, 16, 32, 64, 128])
    times = asked(sku, engine, phase, seq_kv=keys, batch=1)
    assert (np.diff(times.time_s) >= -1e-6 * times.time_s[1:]).all()
    assert (times.time_s > 1e-6).all() and (times.time_s > 0.3 * times.time_s[-1]).all()
    width = times.high_s / times.low_s
    assert width[0] > width[-1]


def test_a_prefill_of_one_token_is_a_decode_where_one_kernel_does_both() -> None:
    engine = "vllm 0.14.0; vllm_flash_attn"
    one = {"seq_kv": 1, "seq_q": 1}
    forward, decoded = (asked("a100-sxm-80gb", engine, phase, **one) for phase in (Phase.FORWARD, Phase.DECODE))
    assert forward.time_s == pytest.approx(decoded.time_s)
    assert "decode vllm" in forward.kernel_names[forward.kernel[0]]


def chosen_kernel(sku: str, **sizes: Any) -> bool:
    """Whether TensorRT-LLM gives a decode to the masked kernel."""
    formats = sizes.pop("formats", "bf16/bf16")
    origin = stated("trtllm 1.0.0; torch_flow", *formats.split("/"), phase="decode")
    return bool(masked_rows(attention(Phase.DECODE, **sizes), sku, origin)[0])


@pytest.mark.parametrize(
    ("sku", "sizes", "masked"),
    [
        ("a100-sxm-80gb", {"batch": 1, "heads": 64, "kv_heads": 4, "seq_kv": 512}, True),  # 16 blocks x 4 < 108 SMs
        ("a100-sxm-80gb", {"batch": 1, "heads": 64, "kv_heads": 4, "seq_kv": 1024}, False),
        ("a100-sxm-80gb", {"batch": 64, "heads": 8, "kv_heads": 8}, True),  # nothing to pack
        ("a100-sxm-80gb", {"batch": 64, "heads": 64, "kv_heads": 1}, True),  # more than XQA packs
        ("h200-sxm-141gb", {"batch": 1, "heads": 8, "kv_heads": 1, "seq_kv": 4096}, True),
        ("h200-sxm-141gb", {"batch": 1, "heads": 8, "kv_heads": 1, "seq_kv": 4096, "formats": "bf16/fp8"}, False),
        ("b200-sxm-180gb", {"batch": 1, "heads": 8, "kv_heads": 8, "seq_kv": 128}, False),
        ("b200-sxm-180gb", {"batch": 64, "heads": 128, "kv_heads": 2}, True),
    ],
)
def test_tensorrt_llm_packs_query_heads_where_its_source_says_so(sku: str, sizes: dict[str, Any], masked: bool) -> None:
    assert chosen_kernel(sku, **sizes) is masked


def test_a_window_that_hides_nothing_is_none_and_one_that_does_is_faster_and_less_sure() -> None:
    for phase in (Phase.FORWARD, Phase.DECODE):
        wide, none, narrow = (
            asked("b200-sxm-180gb", "sglang 0.5.14; trtllm_mha", phase, seq_kv=8192, window=w) for w in (8192, 0, 1024)
        )
        assert wide.time_s == none.time_s and (wide.trust == Trust.PUBLISHED).all()
        assert (narrow.time_s < none.time_s).all() and (narrow.trust == Trust.DATASHEET).all()
        assert (narrow.high_s / narrow.low_s > none.high_s / none.low_s).all()


@given(keys=st.integers(1, 65536), reach=st.integers(1, 8192), batch=st.integers(1, 64))
def test_the_row_without_a_window_has_its_pairs(keys: int, reach: int, batch: int) -> None:
    row = attention(Phase.FORWARD, batch=batch, seq_kv=keys, window=reach)
    plain = window.without(row)
    pairs = batch * (keys * min(reach, keys) - min(reach, keys) ** 2 / 2)
    beyond = batch * keys * window.BEYOND
    found = float(plain.batch[0]) * float(plain.seq_kv[0]) ** 2 / 2
    assert not window.cuts(plain).any()
    assert (
        pairs * 0.5 <= found + plain.seq_kv[0] ** 2
        and found <= 1.5 * (pairs + beyond) + batch * reach**2 + plain.seq_kv[0] ** 2
    )


def over_latent(phase: Phase, heads: int, library: int, **sizes: Any) -> OperatorTable:
    columns = latent.columns(np.array([heads]), np.array([phase == Phase.DECODE]))
    return attention(phase, library, **columns, **sizes)


@pytest.mark.parametrize("sku", ["a100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "gb300-279gb"])
def test_a_latent_cache_is_read_once_for_all_heads(sku: str) -> None:
    gpu = Database.packaged().gpu(sku)
    release = "1.0.0" if sku.startswith("a100") else "1.3.0rc20"
    code = gpu.library(
        Kind.ATTENTION, stated(f"trtllm {release}; default", "bf16", "bf16", phase="decode", latent=True)
    )
    one, many = (gpu.predict(over_latent(Phase.DECODE, heads, code, batch=64, seq_kv=8192)) for heads in (1, 16))
    moved = 64 * 8192 * 576 * 2.0
    assert code and (one.trust == Trust.PUBLISHED).all()
    assert one.time_s[0] > 0.9 * moved / gpu.sku.hbm_bytes_per_s
    assert many.time_s[0] < 1.3 * one.time_s[0]


def test_a_prefill_on_absorbed_heads_has_three_times_the_work() -> None:
    """SGLang's FlashAttention 3 multiplies 576 + 512 numbers a pair, TensorRT-LLM 192 + 128."""
    gpu = Database.packaged().gpu("h200-sxm-141gb")
    names = ("sglang 0.5.14; flash_attention", "trtllm 1.3.0rc20; default")
    codes = [gpu.library(Kind.ATTENTION, stated(name, "bf16", "bf16", phase="forward", latent=True)) for name in names]
    absorbed, expanded = (gpu.predict(over_latent(Phase.FORWARD, 128, code, batch=1, seq_kv=8192)) for code in codes)
    assert all(codes) and 2.4 < absorbed.time_s[0] / expanded.time_s[0] < 4.5


def test_a_latent_row_that_names_nobody_is_answered_by_software_over_latent_caches_with_more_doubt() -> None:
    gpu = Database.packaged().gpu("b200-sxm-180gb")
    code = gpu.library(Kind.ATTENTION, stated("trtllm 1.3.0rc20; default", "bf16", "bf16", phase="decode", latent=True))
    nobody, named = (gpu.predict(over_latent(Phase.DECODE, 128, who, batch=16, seq_kv=4096)) for who in (0, code))
    assert nobody.kernel_names[nobody.kernel[0]].startswith("mla decode")
    assert nobody.high_s[0] / nobody.low_s[0] > named.high_s[0] / named.low_s[0]


def test_widths_of_heads_tell_a_latent_row_from_any_other() -> None:
    assert latent.is_latent(over_latent(Phase.DECODE, 16, 0)).all()
    assert not latent.is_latent(attention(Phase.DECODE)).any()
