"""The GEMM model on a made-up GPU whose law is known: what it learns, refuses and promises."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.gemm import choice as gemm_choice
from tilewise.hwdb.kernels.gemm import fitted as gemm
from tilewise.hwdb.kernels.learning import mlp, regression
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Label, Layout, table_from_columns
from tilewise.hwdb.times import State, Trust

SKU = Database.packaged().sku("h100-sxm5-80gb")
CALLS = {"fwd": Layout.FORWARD, "dgrad": Layout.INPUT_GRADIENT, "wgrad": Layout.WEIGHT_GRADIENT}


def shapes(count: int, seed: int) -> dict[str, Any]:
    """Random bf16 products, a quarter of them with odd N."""
    draw = np.random.default_rng(seed)
    m, n, k = (
        np.round(2 ** draw.uniform(low, high, count)).astype(np.int64) for low, high in ((2, 13), (8, 14), (8, 13))
    )
    n, k = np.maximum(n // 64 * 64, 64), np.maximum(k // 64 * 64, 64)
    n = np.where(draw.random(count) < 0.25, n + 1, n)
    kinds = draw.choice(list(CALLS), count)
    return {
        "kind": kinds, "dtype": np.full(count, "bf16"), "m": m, "n": n, "k": k, "sets": np.ones(count, np.int64),
        "state": np.full(count, "burst"), "held": np.zeros(count, bool),
    }  # fmt: skip


def law_us(columns: dict[str, Any]) -> Any:
    """Time of the made-up GPU: 3 us, 700 TFLOPS in whole 128 x 128 tiles (a third where N is odd), 2.8 TB/s."""
    m, n, k = (columns[name].astype(float) for name in "mnk")
    tiles = np.ceil(m / 128) * np.ceil(n / 128)
    rate = np.where(columns["n"] % 8, 233e12, 700e12)
    compute = np.ceil(tiles / 132) * 132 * 2 * 128 * 128 * k / rate
    memory = 2 * (m * k + n * k + m * n) / 2.8e12
    return 1e6 * (3e-6 + np.maximum(compute, memory))


class MadeUp:
    """A calibration in memory: the made-up GPU's library always takes 128 x 128 tiles."""

    def __init__(self, count: int) -> None:
        self._gemm = shapes(count, 0)
        self._gemm |= {
            "time_us": law_us(self._gemm),
            "kernel": np.full(count, "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_TNT"),
        }

    card: ClassVar[dict[str, Any]] = {"others": [{"ranks": 1, "gpu": {"serial": "b"}}]}  # two cards: none is alone

    def families(self) -> tuple[str, ...]:
        return ("gemm",)

    def measurements(self, family: str) -> dict[str, Any]:
        return self._gemm

    def choices(self) -> dict[str, Any]:
        asked = shapes(600, 1)
        formats = np.repeat([0, 4, 2], 200)  # the pools of precisions: bf16, fp8, tf32
        codes = {name: np.full(600, value) for name, value in
                 (("algorithm", 66), ("tile_n", 128), ("tile_m", 128), ("split_k", 1))}  # fmt: skip
        codes["split_k"][::3] = 2
        kinds = np.array([list(CALLS).index(kind) for kind in asked["kind"]])
        return {"kind": kinds, "dtype": formats, **{name: asked[name] for name in "mnk"}, **codes}


@cache
def learned() -> dict[str, Any]:
    quick = pytest.MonkeyPatch()
    train = mlp.train
    quick.setattr(mlp, "train", lambda f, t, o, loss, plan, w=None: train(f, t, o, loss, _short(plan), w))
    try:
        return gemm.from_calibration(MadeUp(900), SKU)  # type: ignore[arg-type]
    finally:
        quick.undo()


def _short(plan: mlp.Training) -> mlp.Training:
    return mlp.Training(hidden=(32, 32), epochs=80, batch=plan.batch, rate=plan.rate, seed=plan.seed)


def asked(**columns: Any) -> Any:
    count = len(columns["m"])
    full = shapes(count, 2) | {name: np.asarray(value) for name, value in columns.items()}
    return gemm.predict(gemm.table({"gemm": full}), learned(), SKU, State.BURST)


def test_a_law_of_tiles_waves_and_bytes_is_learned() -> None:
    fresh = shapes(300, 7)
    times = gemm.predict(gemm.table({"gemm": fresh}), learned(), SKU, State.BURST)
    error = np.abs(times.time_s * 1e6 / (law_us(fresh) + 0.25) - 1)[~times.refused]
    assert len(error) > 280
    assert np.median(error) < 0.05
    assert np.mean(error) < 0.10


def test_intervals_hold_the_time_and_cover_about_what_they_claim() -> None:
    fresh = shapes(400, 8)
    times = gemm.predict(gemm.table({"gemm": fresh}), learned(), SKU, State.BURST)
    truth = ((law_us(fresh) + 0.25) * 1e-6)[~times.refused]
    times = times.select(np.flatnonzero(~times.refused))
    assert (times.low_s < times.time_s).all() and (times.time_s < times.high_s).all()
    assert 0.8 < np.mean((times.low_s <= truth) & (truth <= times.high_s)) <= 1.0


def test_an_odd_width_costs_what_it_cost_when_measured() -> None:
    times = asked(kind=["fwd", "fwd"], m=[4096, 4096], n=[4096, 4097], k=[4096, 4096])
    assert 1.4 < times.time_s[1] / times.time_s[0] < 5  # three times, by the law; the short training blurs it
    assert times.alignment_s[1] > 0.2 * times.time_s[1] and times.alignment_s[0] == 0


def test_the_farther_a_shape_lies_from_every_measured_one_the_wider_its_interval_and_the_lower_its_trust() -> None:
    far = 2 ** np.arange(12, 34, 3)
    times = asked(kind=["fwd"] * len(far), m=far, n=[4096] * len(far), k=[4096] * len(far))
    assert (np.diff(times.distance) >= 0).all() and times.distance[-1] > 10
    assert (np.diff(times.high_s / times.low_s)[times.distance[1:] > 3] > 0).all()
    assert (np.diff(times.trust) <= 0).all() and times.trust[-1] == Trust.DATASHEET


def test_a_precision_that_was_never_measured_is_answered_by_the_roofline_and_trusted_less() -> None:
    times = asked(kind=["fwd", "fwd"], dtype=["bf16", "fp16"], m=[512, 512], n=[4096, 4096], k=[4096, 4096])
    assert times.trust[0] == Trust.MEASURED
    assert times.trust[1] < Trust.MEASURED and times.time_s[1] > 0


def test_a_product_takes_the_same_time_whatever_is_asked_beside_it() -> None:
    few = shapes(50, 3)
    many = {name: np.tile(values, 700) for name, values in few.items()}  # more than one chunk
    once = gemm.predict(gemm.table({"gemm": few}), learned(), SKU, State.BURST)
    often = gemm.predict(gemm.table({"gemm": many}), learned(), SKU, State.BURST)
    np.testing.assert_allclose(often.time_s, np.tile(once.time_s, 700), rtol=1e-4)
    np.testing.assert_array_equal(often.kernel, np.tile(once.kernel, 700))


def test_the_parts_of_a_time_do_not_exceed_it() -> None:
    times = gemm.predict(gemm.table({"gemm": shapes(300, 4)}), learned(), SKU, State.BURST)
    times = times.select(np.flatnonzero(~times.refused))
    assert (times.padding_s + times.wave_s <= times.time_s).all()
    assert (times.kernel >= 0).all() and all("128x128" in name for name in times.kernel_names)


@settings(deadline=None, max_examples=30)
@given(m=st.integers(8, 8192), n=st.integers(4, 200), k=st.integers(4, 100), more=st.integers(2, 4))
def test_several_times_the_work_is_never_faster(m: int, n: int, k: int, more: int) -> None:
    times = asked(kind=["fwd"] * 2, m=[m, m], n=[64 * n, 64 * n], k=[64 * k, 64 * k * more])
    assume(not times.refused.any())
    assert times.time_s[1] > 0.9 * times.time_s[0]


def test_every_precision_of_a_measurement_file_has_a_choice_pool_and_a_width() -> None:
    for precision in gemm.PRECISIONS.values():
        assert gemm_choice.ELEMENT[precision] > 0 and gemm_choice.POOL[precision] < len(gemm_choice.POOLS)
    assert gemm.PRECISIONS["fp8row"] is Precision.FP8_ROW


def test_a_net_is_the_same_after_a_round_trip_through_arrays() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 3)).astype(np.float32)
    net = mlp.train(x, x.sum(1, keepdims=True), 1, mlp.huber(0.1), mlp.Training(hidden=(16,), epochs=300, decay=0.0))
    again = mlp.Mlp.from_arrays(net.to_arrays("n"), "n")
    np.testing.assert_allclose(again(x), net(x), atol=5e-3)  # weights are kept in half precision
    assert np.abs(net(x) - x.sum(1, keepdims=True)).mean() < 0.1


def test_a_feature_that_never_varied_in_training_says_nothing_later() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    x[:, 1] = 0
    net = mlp.train(x, x[:, :1], 1, mlp.huber(0.1), mlp.Training(hidden=(16,), epochs=5))
    np.testing.assert_array_equal(net(x + np.float32([0, 1])), net(x))


def test_the_distance_is_zero_where_measured_and_grows_by_octaves() -> None:
    place = np.array([[4.0, 10.0, 10.0], [6.0, 10.0, 10.0]])
    rows = regression.Rows(np.ones(2), np.zeros((2, 1), np.float32), place, np.zeros(2, int), np.zeros(2, int))
    fitted = regression.fit(rows, np.ones(2), mlp.Training(hidden=(4,), epochs=1), nets=1)
    far = regression.Rows(np.ones(3), np.zeros((3, 1), np.float32), place[0] + np.array([[0, 0, 0], [0, 3, 0], [0, 5, 0]]),
                          np.zeros(3, int), np.zeros(3, int))  # fmt: skip
    near, some, much = fitted.distance(far)
    assert near == 0 and 0 < some < much
    unknown = regression.Rows(np.ones(1), np.zeros((1, 1), np.float32), place[:1], np.array([5]), np.zeros(1, int))
    assert np.isnan(fitted.distance(unknown)[0])


def line_up_to(end: float, count: int, inputs: int = 1) -> tuple[regression.Rows, Any]:
    """Rows whose log residual is their first feature, from 0 to `end`; other features are 0."""
    x = np.zeros((count, inputs), np.float32)
    x[:, 0] = np.linspace(0, end, count)
    alike = np.zeros(count, int)
    return regression.Rows(np.full(count, 1e-5), x, np.zeros((count, 1)), alike, alike), 1e-5 * np.exp(x[:, 0])


def test_nets_learn_from_rows_of_a_sibling_where_a_gpu_has_none() -> None:
    plan = mlp.Training(hidden=(16,), epochs=200, batch=32, rate=1e-2)
    mine, measured = line_up_to(0.5, 200)
    wanted, truth = line_up_to(1.0, 200)
    folds = np.arange(200) % regression.FOLDS
    beside = regression.Beside(wanted.features, np.log(truth / wanted.base_s), folds)
    helped = regression.fit(mine, measured, plan, nets=1, beside=beside)
    assert np.abs(helped.residual(wanted.features) - wanted.features[:, 0]).max() < 0.1
    assert len(helped.margins) == 1  # nothing of a sibling is judged


def test_a_model_from_before_a_feature_was_added_answers_by_what_it_knows() -> None:
    plan = mlp.Training(hidden=(8,), epochs=20)
    fitted = regression.fit(*line_up_to(1.0, 100), plan, nets=1, local=plan)
    more = line_up_to(1.0, 100, inputs=3)[0]
    np.testing.assert_array_equal(fitted.residual(more.features), fitted.residual(more.features[:, :1]))


def test_a_shape_is_judged_in_the_same_fold_on_every_gpu() -> None:
    first, second = gemm.problem_of(shapes(50, 1)), gemm.problem_of(shapes(50, 1))
    np.testing.assert_array_equal(gemm._folds(first), gemm._folds(second))
    assert len(set(gemm._folds(first).tolist())) == regression.FOLDS


def test_the_interval_is_wider_where_errors_are_usually_larger() -> None:
    draw = np.random.default_rng(3)
    x = draw.uniform(-1, 1, (1200, 1)).astype(np.float32)
    loud = x[:, 0] > 0
    measured = 1e-5 * np.exp(draw.normal(0, np.where(loud, 0.2, 0.02)))
    alike = np.zeros(1200, int)
    rows = regression.Rows(np.full(1200, 1e-5), x, np.zeros((1200, 1)), alike, alike)
    local = mlp.Training(hidden=(8,), epochs=100)
    fitted = regression.fit(rows, measured, mlp.Training(hidden=(2,), epochs=10), nets=1, local=local)
    answer = regression.Regression.from_arrays(fitted.to_arrays()).predict(rows)
    width = np.log(answer.high_s / answer.low_s)
    assert np.median(width[loud]) > 4 * np.median(width[~loud])
    inside = (answer.low_s <= measured) & (measured <= answer.high_s)
    assert 0.87 < inside.mean() < 0.93 and inside[loud].mean() > 0.75 and inside[~loud].mean() > 0.75


@given(st.sampled_from(gemm_choice.TILES), st.integers(1, 30), st.integers(1, 5))
def test_whole_waves_of_whole_tiles_waste_nothing(tile: tuple[int, int], high: int, waves: int) -> None:
    tile_n, tile_m = tile
    m, n = np.array([high * tile_m]), np.array([waves * SKU.sm_count * tile_n])
    forward, bf16 = np.array([int(Layout.FORWARD)]), np.array([int(Precision.BF16)])
    p = gemm_choice.problem(m, n, np.array([4096]), np.ones(1), forward, bf16)
    waste = gemm_choice.features(p, SKU.sm_count)[0, -len(gemm_choice.TILES) :]
    assert waste[gemm_choice.TILES.index(tile)] == pytest.approx(0, abs=1e-6)
    assert (waste > -1e-6).all()


def batch_s(groups: int, m: int, n: int, k: int, layout: Layout) -> Any:
    """(time, low, high) of a batch in fp32 on a calibrated H100."""
    flops = 2.0 * groups * m * n * k
    sizes = {
        "m": m,
        "n": n,
        "k": k,
        "groups": groups,
        "layout": int(layout),
        "kind": int(Kind.GEMM),
        "precision": int(Precision.FP32),
    }
    work = {
        "flops": flops,
        "executed_flops": flops,
        "bytes_read": 4.0 * groups * k * (m + n),
        "bytes_written": 4.0 * groups * m * n,
    }
    columns = {name: np.array([value]) for name, value in (sizes | work).items()}
    times = (
        Database.packaged()
        .gpu("h100-sxm5-80gb")
        .predict(table_from_columns([Label(name="", layer="", part="")], 1, 1, columns))
    )
    return times.time_s[0], times.low_s[0], times.high_s[0]


@pytest.mark.parametrize("layout", list(Layout))
def test_a_batch_in_fp32_costs_by_its_tiles_and_leaves_the_peak_alone(layout: Layout) -> None:
    one, few, many = (batch_s(groups, 2048, 2048, 64, layout) for groups in (1, 7, 142))
    assert many[0] / few[0] == pytest.approx(142 / 7, rel=0.1) and few[0] > 4 * one[0]
    assert 2.0 * 142 * 2048 * 2048 * 64 / many[0] < 0.8 * SKU.peak(Precision.FP32).flops_per_s
    assert many[0] / many[1] > np.exp(gemm.STACKED) and many[2] / many[0] > np.exp(gemm.STACKED)
