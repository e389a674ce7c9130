"""FLOPs and bytes as people count them: user-cases G10-G18, G20, G69, and what must hold for any shape."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.table import Kind, OperatorTable
from tilewise.server.architecture import Architecture, count, read, read_with
from tilewise.server.operators import build
from tilewise.server.operators.attention_kernel import pairs
from tilewise.server.operators.conventions import causal_flops, full_flops, palm_flops
from tilewise.server.workload import Workload

Config = Callable[[str], Architecture]
Llama = Callable[..., Architecture]
H100 = Database.packaged().gpu("h100-sxm5-80gb")


def train(sequence: int = 2048, **options: object) -> Workload:
    return Workload(phase="train", batch=1, sequence=sequence, **options)  # type: ignore[arg-type]


def flops(table: OperatorTable, name: str = "", part: str = "", kind: Kind | None = None) -> float:
    """Model FLOPs of the rows of a name, a part or a kind."""
    chosen = np.array([name in ("", label.name) and part in ("", label.part) for label in table.labels])[table.label]
    rows = chosen & (table.kind == kind) if kind is not None else chosen
    return float((table.count * table.flops)[rows].sum())


@pytest.mark.parametrize(("sequence", "share"), [(2048, 3.5), (8192, 12.5), (32768, 36.4), (131072, 69.6)])
def test_causal_attention_takes_its_known_share_of_llama_3_8b(llama: Llama, sequence: int, share: float) -> None:
    table = build(llama(), train(sequence))  # G10, G50
    assert 100 * flops(table, kind=Kind.ATTENTION) / flops(table) == pytest.approx(share, abs=0.05)


def test_full_attention_counts_nearly_twice_the_causal_half(llama: Llama) -> None:
    table = build(llama(), train(65536))  # G11: the usual formula over-counts
    attention = table.select(table.kind == Kind.ATTENTION)
    assert full_flops(attention)[0] / causal_flops(attention)[0] == pytest.approx(2, rel=1e-4)


def test_fewer_kv_heads_change_projections_and_not_scores(llama: Llama) -> None:
    many, few = (build(llama(num_key_value_heads=n), train()) for n in (32, 8))  # G12
    assert flops(many, kind=Kind.ATTENTION) == flops(few, kind=Kind.ATTENTION)
    assert flops(many, "q_proj") == flops(few, "q_proj")
    assert flops(many, "k_proj") == 4 * flops(few, "k_proj")


def test_windowed_layers_cost_the_same_per_token_at_any_length(config: Config) -> None:
    gemma = config("gemma/gemma-3-1b-it")  # G13: window 512 in 22 of 26 layers
    window = gemma.stacks[0].blocks[0].mixers[0].window  # type: ignore[union-attr]
    assert window == 512
    per_token = [pairs(n, n, True, window) / n for n in (2048, 32768)]
    assert per_token[1] / per_token[0] == pytest.approx(1, rel=0.15)
    assert pairs(2048, 2048, True, 512) == 2048 * 512 - 512 * 511 / 2


def test_chunked_attention_stays_inside_its_chunk() -> None:
    assert pairs(2048, 2048, True, chunk=256) == 8 * 256 * 257 / 2  # G13: Llama 4
    assert pairs(1, 1000, True, chunk=256) == 1000 - 3 * 256


def test_mixtral_counts_the_active_experts_alone(config: Config) -> None:
    mixtral = config("mixtral/Mixtral-8x7B-v0.1")  # G14
    size = count(mixtral)
    assert (size.total, size.active) == (46_702_792_704, 12_879_925_248)
    dense = 6 * (size.active - 32000 * 4096) * 4096
    table = build(mixtral, train(4096))
    assert flops(table) - flops(table, kind=Kind.ATTENTION) == pytest.approx(dense, rel=1e-3)


def test_latent_attention_has_another_width_for_values_than_for_scores(config: Config) -> None:
    table = build(config("deepseek/DeepSeek-V3"), train(4096))  # G15
    rows = table.select(table.kind == Kind.ATTENTION)
    assert set(rows.head_dim) == {192} and set(rows.head_dim_v) == {128}
    assert rows.flops[0] == 2 * 128 * (192 + 128) * 4096 * 4097 / 2


@pytest.mark.parametrize("name", ["qwen3/Qwen3-0.6B", "qwen3/Qwen3-8B"])
def test_lm_head_counts_whether_tied_or_not_and_the_look_up_never(config: Config, name: str) -> None:
    model = config(name)  # G16
    assert model.head is not None
    table = build(model, Workload(phase="prefill", batch=1, sequence=128, logits="all"))
    assert flops(table, "lm_head") == 2 * 128 * model.head.inputs * model.head.outputs
    assert flops(table, "embed_tokens") == 0


def test_the_palm_figure_counts_the_embedding_and_ours_does_not(config: Config) -> None:
    model = config("smollm/SmolLM2-135M")  # G17
    workload = train(128)
    ours = causal_flops(build(model, workload))[0]
    size = count(model)
    palm = palm_flops(model, workload, size.active)[0]
    attention = 12 * 30 * 576 * 128 * 128
    assert palm - attention == pytest.approx(6 * size.total * 128)
    assert ours < palm


def test_training_takes_three_forwards(llama: Llama) -> None:
    forward = Workload(phase="prefill", batch=1, sequence=2048, logits="all")  # G18: 6 N D, not 2 N D
    ratio = flops(build(llama(), train()), part="mlp") / flops(build(llama(), forward), part="mlp")
    assert ratio == 3


def test_the_indexer_of_deepseek_v3_2_is_a_line_of_its_own_and_small(config: Config) -> None:
    base = config("deepseek/DeepSeek-V3")  # G20
    keys = {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, "model_type": "deepseek_v32"}
    model = read(json.dumps({**DEEPSEEK_V32, **keys}))
    table = build(model, train(4096))
    share = flops(table, part="indexer") / flops(table)
    assert 0.005 < share < 0.03
    assert flops(build(base, train(4096)), part="indexer") == 0


DEEPSEEK_V32 = {
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "n_group": 8,
    "topk_group": 4, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
}  # fmt: skip


def test_flops_follow_the_feed_forward_width_and_its_gate(llama: Llama) -> None:
    table = build(llama(), train())  # G69
    assert flops(table, part="mlp") == 6 * 2048 * 32 * 3 * 4096 * 14336


def test_recompute_shows_in_executed_flops_alone(llama: Llama) -> None:
    plain, full = build(llama(), train()), build(llama(), train(recompute="full"))  # G70
    assert causal_flops(plain)[0] == causal_flops(full)[0]
    executed = [(t.count * t.executed_flops).sum() for t in (plain, full)]
    assert executed[1] / executed[0] == pytest.approx(4 / 3, rel=0.05)


def test_the_attention_backward_computes_five_products_and_is_credited_four(llama: Llama) -> None:
    table = build(llama(), train())
    backward = table.select((table.kind == Kind.ATTENTION) & (table.phase == 1))
    assert backward.executed_flops[0] / backward.flops[0] == pytest.approx(5 / 4)


@given(
    queries=st.integers(1, 300), cached=st.integers(0, 300), window=st.integers(0, 400), causal=st.booleans(),
)  # fmt: skip
def test_pairs_are_what_a_mask_would_leave(queries: int, cached: int, window: int, causal: bool) -> None:
    keys = queries + cached
    seen = (
        np.arange(keys)[None, :] <= (np.arange(queries) + cached)[:, None] if causal else np.ones((queries, keys), bool)
    )
    if causal and window:
        seen &= np.arange(keys)[None, :] > (np.arange(queries) + cached)[:, None] - window
    expected = seen.sum() if causal or not window else queries * min(window, keys)
    assert pairs(queries, keys, causal, window) == expected


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 64), min_size=2, max_size=5), st.sampled_from(["train", "prefill", "decode"]))
def test_many_shapes_at_once_are_the_shapes_one_by_one(widths: list[int], phase: str) -> None:
    text = json.dumps({"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 3,
                       "intermediate_size": 1024, "vocab_size": 1000})  # fmt: skip
    length = {"context": 300} if phase == "decode" else {"sequence": 300}
    workload = Workload(phase=phase, batch=2, **length)  # type: ignore[arg-type]
    sizes = np.array(widths) * 8
    together = build(read_with(text, {"intermediate_size": sizes}), workload)
    for index, size in enumerate(sizes):
        alone = build(read_with(text, {"intermediate_size": int(size)}), workload)
        rows = together.select(together.shape == index)
        for column in ("flops", "bytes_read", "bytes_written", "count", "m", "n", "k", "rows", "cols", "special"):
            np.testing.assert_allclose(getattr(rows, column), getattr(alone, column))


def test_decode_reads_the_cache_once_and_weights_once(llama: Llama) -> None:
    asked = Workload(phase="decode", batch=1, context=8192, stack="vllm", precision="bf16")  # torch copies its cache
    table = build(llama(), asked, H100.kernels("vllm"))
    weights = 2 * (count(llama()).total - 128256 * 4096)
    read_bytes = (table.count * table.bytes_read).sum()
    assert read_bytes == pytest.approx(weights + 8192 * 131072, rel=0.01)


def test_latent_attention_decodes_over_the_latent_cache(config: Config) -> None:
    asked = Workload(phase="decode", batch=1, context=4096, stack="vllm")  # transformers expands every cached token
    table = build(config("deepseek/DeepSeek-V3"), asked, H100.kernels("vllm"))
    rows = table.select(table.kind == Kind.ATTENTION)
    assert set(rows.head_dim) == {576} and set(rows.head_dim_v) == {512} and set(rows.kv_heads) == {1}


def test_eager_norms_move_several_times_the_bytes_of_a_fused_one(llama: Llama) -> None:
    moved = {}  # G53: about 8 passes against 1
    for mode in ("eager", "compiled"):
        table = build(llama(), Workload(phase="prefill", batch=1, sequence=4096, mode=mode))
        norms = np.array([label.part in ("norm", "residual") for label in table.labels])[table.label]
        moved[mode] = (table.count * (table.bytes_read + table.bytes_written))[norms].sum()
    assert 5 < moved["eager"] / moved["compiled"] < 10
