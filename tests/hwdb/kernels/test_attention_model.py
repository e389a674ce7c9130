"""The attention model: recovers a law it was shown, keeps to physics between the points, refuses what no kernel takes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.attention import fitted as attention
from tilewise.hwdb.kernels.attention import physics as attention_physics
from tilewise.hwdb.kernels.attention.choice import backend, grid, visible
from tilewise.hwdb.kernels.learning import mlp
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import VARIANT_CODES, Kind, Label, OperatorTable, Phase, table_from_columns
from tilewise.hwdb.times import State, Times, Trust

SKU = Database.packaged().sku("h100-sxm5-80gb")
LABEL = Label(name="attention", layer="decoder.0", part="attention")
HEADS = ((32, 8, 128), (16, 16, 128), (12, 12, 64), (16, 16, 80), (14, 2, 64), (16, 8, 256), (32, 32, 96), (24, 2, 192))
PLAN = mlp.Training(hidden=(8,), epochs=20, batch=64, decay=10.0)
NOISE = 0.01


def rows(**columns: Any) -> OperatorTable:
    defaults: dict[str, Any] = {
        "batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128, "seq_q": 2048, "seq_kv": 2048, "precision": Precision.BF16,
    }  # fmt: skip
    filled = {name: np.atleast_1d(value) for name, value in (defaults | columns).items()}
    filled.setdefault("head_dim_v", filled["head_dim"])
    length = max(map(len, filled.values()))
    arrays = {name: np.resize(value, length) for name, value in filled.items()}
    return table_from_columns([LABEL], 1, length, arrays | {"kind": np.full(length, int(Kind.ATTENTION))})


def points(count: int, seed: int) -> dict[str, Any]:
    """Columns of a measurement file whose times follow the physics with constants unlike the priors, and some noise."""
    draw = np.random.default_rng(seed)
    heads = np.array(HEADS)[draw.integers(0, len(HEADS), count)]
    phase = draw.choice(["forward", "backward", "decode"], count)
    seq = draw.choice([256, 512, 1024, 1536, 2048, 4096, 8192], count)
    columns: dict[str, Any] = {
        "phase": phase, "backend": draw.choice(["cudnn", "flash"], count), "batch": draw.choice([1, 2, 4, 8], count),
        "heads": heads[:, 0], "kv_heads": heads[:, 1], "head_dim": heads[:, 2], "head_dim_v": heads[:, 2],
        "seq_q": np.where(phase == "decode", 1, seq), "seq_kv": seq * np.where(phase == "decode", 4, 1),
        "causal": np.where(phase == "decode", 0, draw.integers(0, 2, count)), "window": np.zeros(count, np.int64),
        "kernel": np.array(["kernel"] * count),
    }  # fmt: skip
    columns["time_us"] = law(attention.table({"attention": columns})) * 1e6 * draw.lognormal(0, NOISE, count)
    return columns


def law(table: OperatorTable) -> Any:
    cut = grid(table, backend(table), SKU.sm_count)
    constants = np.tile(attention_physics.PRIOR + 0.3 * attention_physics.TOLERANCE, (len(table), 1))
    work = attention_physics.work(table, cut, SKU)
    return attention_physics.walls(work, cut, constants, np.full(len(table), np.log(0.7)), SKU).time_s


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    return attention.fit(points(320, 0), SKU, PLAN)


def predict(table: OperatorTable, model: dict[str, Any]) -> Times:
    return attention.predict(table, model, SKU, State.BURST)


def test_a_law_is_recovered_on_points_that_were_not_shown(model: dict[str, Any]) -> None:
    fresh = points(200, 1)
    times = predict(attention.table({"attention": fresh}), model)
    measured = attention.measured_s({"attention": fresh})
    assert np.abs(times.time_s / measured - 1).mean() < 0.03
    assert 0.8 < ((times.low_s <= measured) & (measured <= times.high_s)).mean() <= 1


@given(st.sampled_from(HEADS), st.integers(1, 8), st.integers(512, 8192), st.sampled_from(("cudnn", "flash")))
@settings(deadline=None, max_examples=40)
def test_a_causal_mask_never_costs_time_beyond_a_few_tiles(
    model: dict[str, Any], heads: tuple[int, int, int], batch: int, seq: int, name: str
) -> None:
    shape = {"heads": heads[0], "kv_heads": heads[1], "head_dim": heads[2], "batch": batch, "seq_q": seq, "seq_kv": seq}
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        full, causal = predict(
            rows(**shape, causal=[0, 1], phase=int(phase), variant=VARIANT_CODES[name]), model
        ).time_s
        assert causal < (1.05 + 128 / seq) * full  # of one wave the longest block has all tiles and masks the last ones


@given(st.sampled_from(HEADS), st.integers(1, 8), st.integers(128, 4096), st.sampled_from(Phase))
@settings(deadline=None, max_examples=40)
def test_twice_the_keys_and_queries_never_take_less_time(
    model: dict[str, Any], heads: tuple[int, int, int], batch: int, seq: int, phase: Phase
) -> None:
    both = np.array([seq, 2 * seq])
    queries = np.ones(2) if phase is Phase.DECODE else both
    shape = {"heads": heads[0], "kv_heads": heads[1], "head_dim": heads[2], "batch": batch}
    short, long = predict(rows(**shape, seq_q=queries, seq_kv=both, phase=int(phase)), model).time_s
    assume(np.isfinite(short) and np.isfinite(long))
    assert long > 0.97 * short


def test_heads_80_wide_cost_as_their_padded_width_and_say_what_padding_took(model: dict[str, Any]) -> None:
    times = predict(rows(heads=32, kv_heads=32, head_dim=[80, 128], seq_q=8192, seq_kv=8192), model)
    assert times.time_s[0] == pytest.approx(times.time_s[1], rel=0.1)
    assert times.padding_s[0] > 0.3 * times.time_s[0]
    assert times.padding_s[1] < 0.05 * times.time_s[1]


def test_many_rows_at_once_are_each_row_alone(model: dict[str, Any]) -> None:
    table = attention.table({"attention": points(30, 2)})
    alone = [predict(table.select(np.array([row])), model).time_s[0] for row in range(len(table))]
    assert predict(table, model).time_s == pytest.approx(alone, rel=1e-5)


def test_a_window_wider_than_the_sequence_is_plain_causal_attention(model: dict[str, Any]) -> None:
    times = predict(rows(causal=1, window=[4096, 0], variant=VARIANT_CODES["flash"]), model).time_s
    assert times[0] == pytest.approx(times[1])


def test_a_narrow_window_saves_time_on_a_long_sequence(model: dict[str, Any]) -> None:
    times = predict(rows(causal=1, window=[512, 0], seq_q=8192, seq_kv=8192, variant=VARIANT_CODES["flash"]), model)
    assert times.time_s[0] < 0.5 * times.time_s[1]


def test_the_backend_is_cudnn_unless_it_cannot_take_the_heads_or_a_window_is_set(model: dict[str, Any]) -> None:
    times = predict(rows(head_dim=[128, 100, 128], causal=1, window=[0, 0, 512]), model)
    names = [times.kernel_names[code] for code in times.kernel]
    assert names[0].startswith("cudnn") and names[1].startswith("flash") and names[2].startswith("flash")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"variant": VARIANT_CODES["cudnn"], "head_dim": 100}, "nearest is 104"),
        ({"variant": VARIANT_CODES["flash"], "head_dim": 320}, "nearest is 256"),
        ({"variant": VARIANT_CODES["flash"], "head_dim": 192, "head_dim_v": 128}, "run on cudnn"),
        ({"variant": VARIANT_CODES["math"]}, "math attention was not measured"),
    ],
)
def test_what_no_measured_kernel_takes_has_no_time_but_a_reason(
    model: dict[str, Any], columns: dict[str, Any], said: str
) -> None:
    times = predict(rows(**columns), model)
    assert np.isnan(times.time_s[0]) and np.isnan(times.low_s[0])
    assert said in times.refusals[times.refusal[0]]


def test_a_sequence_longer_than_any_measured_one_is_answered_with_its_distance_and_less_surely(
    model: dict[str, Any],
) -> None:
    lengths = 2 ** np.array([11, 17, 23])
    times = predict(rows(seq_q=lengths, seq_kv=lengths, causal=1), model)
    assert (np.diff(times.distance) >= 3).all() and times.trust[-1] == Trust.DATASHEET
    assert (np.diff(times.high_s / times.low_s) > 0).all()


def test_attention_in_fp32_is_answered_from_the_datasheet(model: dict[str, Any]) -> None:
    times = predict(rows(precision=int(Precision.FP32), flops=1e10, bytes_read=1e7, bytes_written=1e6), model)
    assert times.time_s[0] > 0 and times.trust[0] < Trust.MEASURED


def test_absorbed_latent_decode_is_answered_from_the_datasheet(model: dict[str, Any]) -> None:
    latent = {"heads": 128, "kv_heads": 1, "head_dim": 576, "head_dim_v": 512, "seq_q": 1, "seq_kv": 4096}
    work = {"flops": 1e10, "bytes_read": 1e7, "bytes_written": 1e5}
    times = predict(rows(**latent, **work, phase=int(Phase.DECODE)), model)
    assert times.time_s[0] > 0 and np.isnan(times.distance[0])


@given(
    st.integers(1, 6000), st.integers(0, 4000), st.sampled_from(((128, 64), (64, 64), (64, 256), (128, 128))),
    st.sampled_from((0, 128, 500, 1024)),
)  # fmt: skip
def test_tiles_under_a_mask_are_those_that_a_loop_over_blocks_counts(
    queries: int, earlier: int, tile: tuple[int, int], window: int
) -> None:
    outer, inner = tile
    keys, counted = queries + earlier, 0
    for block in range(-(-queries // outer)):
        last = min(keys, earlier + (block + 1) * outer)
        first = max(0, earlier - window + 1 + block * outer) if 0 < window < keys else 0
        counted += (last - 1) // inner - first // inner + 1
    sizes = [np.array([value]) for value in (queries, keys, outer, inner, earlier)]
    steps, _ = visible(*sizes, np.array([True]), np.array([window]))
    assert steps[0] == pytest.approx(counted, rel=0.02, abs=1.5)


@given(st.integers(1, 64), st.sampled_from((1, 2, 8, 32)), st.integers(128, 65536))
def test_flash_splits_keys_as_its_published_heuristic_does(batch: int, heads: int, keys: int) -> None:
    blocks, slots, tiles = batch * heads, 2 * SKU.sm_count, -(-keys // 128)
    shape = {"batch": batch, "heads": heads, "kv_heads": heads, "seq_q": 1, "seq_kv": keys, "phase": int(Phase.DECODE)}
    table = rows(**shape, variant=VARIANT_CODES["flash"])
    expected = 1
    if blocks < 0.8 * slots:
        able = [n for n in range(1, min(128, tiles) + 1) if n == 1 or -(-tiles // n) != -(-tiles // (n - 1))]
        share = {n: blocks * n / slots / np.ceil(blocks * n / slots) for n in able}
        expected = min(n for n in able if share[n] >= 0.85 * max(share.values()))
    assert grid(table, backend(table), SKU.sm_count).splits[0] == expected


def test_blocks_that_are_alike_wait_for_a_whole_wave_under_a_causal_mask_too() -> None:
    """One block a head: 160 of them on 132 SMs take two waves. Many unequal ones a head: the rest of a wave hardly counts."""
    table = rows(
        batch=32, heads=5, kv_heads=5, seq_q=[128, 4096], seq_kv=[128, 4096], causal=1, variant=VARIANT_CODES["flash"]
    )
    wave = attention_physics.work(table, grid(table, backend(table), SKU.sm_count), SKU).wave
    assert wave[0] == pytest.approx(2 - 160 / 132)
    assert wave[1] < 0.05


def test_flash_takes_its_general_kernel_where_tiles_or_heads_are_not_whole_or_heads_are_wide() -> None:
    table = rows(head_dim=[128, 128, 80, 192], seq_q=[2048, 2000, 2048, 2048], seq_kv=[2048, 2000, 2048, 2048], causal=1,
                 variant=VARIANT_CODES["flash"])  # fmt: skip
    work = attention_physics.work(table, grid(table, backend(table), SKU.sm_count), SKU)
    assert work.edge.tolist() == [False, True, True, True]


def test_an_uneven_length_costs_cudnn_every_tile_but_under_a_causal_mask_only_the_last() -> None:
    table = rows(seq_q=2000, seq_kv=2000, causal=[0, 1], variant=VARIANT_CODES["cudnn"])
    assert attention_physics.work(table, grid(table, backend(table), SKU.sm_count), SKU).ragged.tolist() == [
        True,
        False,
    ]


def test_a_windowed_backward_copies_nothing_into_another_order() -> None:
    table = rows(causal=1, window=[0, 4096], phase=Phase.BACKWARD, variant=VARIANT_CODES["flash"])
    work = attention_physics.work(table, grid(table, backend(table), SKU.sm_count), SKU)
    assert work.helpers[0] - work.helpers[1] == 2
    assert work.helper_bytes[0] > work.helper_bytes[1]


def test_intervals_come_from_heads_that_no_fit_has_seen() -> None:
    """Heads that each have a rate of their own: rows of the same heads give it away, so they are judged together."""
    drawn = points(600, 2)
    some = (drawn["phase"] == "forward") & (drawn["backend"] == "cudnn")
    columns = {name: values[some] for name, values in drawn.items()}
    own = {heads: factor for heads, factor in zip(HEADS, np.linspace(0.8, 1.25, len(HEADS)), strict=True)}
    mine = zip(columns["heads"], columns["kv_heads"], columns["head_dim"], strict=True)
    columns["time_us"] = columns["time_us"] * np.array([own[heads] for heads in mine])
    answer = predict(attention.table({"attention": columns}), attention.fit(columns, SKU, PLAN))
    assert np.median(np.log(answer.high_s / answer.time_s)) > 0.08
