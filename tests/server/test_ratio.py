"""The interval of the ratio of two steps: what cancels, what adds up, and what does not depend on the order."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.server.architecture import Architecture, read, read_with
from tilewise.server.architecture.model import Size
from tilewise.server.operators import walk
from tilewise.server.step.predict import predict
from tilewise.server.step.ratio import Errors, errors_of, half_widths, ratio_of
from tilewise.server.step.report import Report
from tilewise.server.workload import Workload

TRAIN = Workload(phase="train", sequence=4096)
PREFILL = Workload(phase="prefill", sequence=2048)
DECODE = Workload(phase="decode", batch=8, context=4096)
LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
}


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Database.packaged().gpu("h100-sxm5-80gb")


def apart(base: Report, head: Report) -> float:
    """The width of the ratio's interval by two intervals that know nothing of each other."""
    one, two = base.step.time, head.step.time
    assert one is not None and two is not None
    return two.high_s / one.low_s - two.low_s / one.high_s


def test_two_equal_steps_are_equal_for_sure(gpu: Gpu, llama: Callable[..., Architecture]) -> None:
    report = predict(gpu, llama(), TRAIN)
    assert ratio_of(gpu, report, report) == (1.0, 1.0, 1.0)


def test_what_did_not_change_does_not_widen_the_interval(gpu: Gpu, llama: Callable[..., Architecture]) -> None:
    base, vocab, all_new = (
        predict(gpu, llama(**keys), TRAIN) for keys in ({}, {"vocab_size": 128000}, {"hidden_size": 4608})
    )
    small, large = (high - low for low, _, high in (ratio_of(gpu, base, head) for head in (vocab, all_new)))
    assert 0 < small < 0.02
    assert small < 0.3 * large
    assert large < 0.7 * apart(base, all_new)


def test_the_ratio_the_other_way_round_is_the_reciprocal(gpu: Gpu, llama: Callable[..., Architecture]) -> None:
    base, head = (
        predict(gpu, llama(), PREFILL),
        predict(gpu, llama(intermediate_size=14000, num_hidden_layers=30), PREFILL),
    )
    there, back = ratio_of(gpu, base, head), ratio_of(gpu, head, base)
    assert back == pytest.approx([1 / bound for bound in reversed(there)], rel=1e-12)


def test_many_heads_in_one_call_are_what_single_calls_say(gpu: Gpu) -> None:
    text, sizes = json.dumps(LLAMA_3_8B), np.array([13312, 14000, 14336, 14337])

    def entries(size: Size) -> Errors:
        table = walk(read_with(text, {"intermediate_size": size}), PREFILL).table()
        return errors_of(gpu, table, gpu.predict(table, PREFILL.clock), PREFILL)

    base = entries(14336)
    together = np.stack(half_widths(base, entries(sizes)))
    single = np.concatenate([half_widths(base, entries(int(size))) for size in sizes], axis=1)
    assert together == pytest.approx(single, rel=1e-4)
    assert single[:, 2].tolist() == [0.0, 0.0] and (np.delete(single, 2, axis=1) > 0).all()


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.fixed_dictionaries(
        {
            "intermediate_size": st.integers(256, 30_000),
            "num_hidden_layers": st.integers(1, 40),
            "vocab_size": st.integers(1000, 200_000),
        }
    ),
    workload=st.sampled_from([TRAIN, PREFILL, DECODE]),
)
def test_the_interval_of_any_edit_is_finite_and_holds_the_ratio(
    gpu: Gpu, sizes: dict[str, int], workload: Workload
) -> None:
    base, head = (predict(gpu, read(json.dumps({**LLAMA_3_8B, **keys})), workload) for keys in ({}, sizes))
    if base.step.time is None or head.step.time is None:
        return
    low, ratio, high = ratio_of(gpu, base, head)
    assert 0 < low <= ratio <= high < np.inf
