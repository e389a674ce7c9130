"""Which GEMMs a calibration measures."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.calibration import gemm_plan, sorts
from tilewise.calibration.order import interleave
from tilewise.calibration.protocol import SETS_MAX, Case, Level
from tilewise.calibration.target import target
from tilewise.hwdb.calibration import held_out
from tilewise.hwdb.database import Database
from tilewise.hwdb.times import State

H100 = target(Database.packaged().sku("h100-sxm5-80gb"))
CASES = gemm_plan.cases(H100, Level.FULL)
BURST = [case for case in CASES if case.state is State.BURST]


def kinds(cases: list[Case]) -> dict[tuple[object, object], float]:
    counts = Counter((case.key["kind"], case.key["dtype"]) for case in cases)
    return {kind: count / len(cases) for kind, count in counts.items()}


def test_any_prefix_is_a_balanced_sample() -> None:
    whole = kinds(BURST[:8000])
    for length in (300, 1000, 4000):
        part = kinds(BURST[:length])
        assert all(abs(part.get(kind, 0) - share) < 0.03 for kind, share in whole.items())


def test_the_plan_is_the_same_every_time() -> None:
    assert [case.identity for case in gemm_plan.cases(H100, Level.FULL)] == [case.identity for case in CASES]


def test_rows_from_1_to_16384_and_every_alignment_class_are_covered() -> None:
    forward = [c for c in BURST[:5000] if c.key["kind"] == "fwd" and c.key["dtype"] == "bf16"]
    rows = {c.key["m"] for c in forward}
    assert rows >= {2**e for e in range(15)}
    for size in ("n", "k"):
        lowest_bits = Counter(min(int(c.key[size]) & -int(c.key[size]), 128) for c in forward)
        assert all(lowest_bits[step] >= 10 for step in gemm_plan.ALIGNMENTS)


def test_sides_of_a_few_features_and_their_gradients_are_measured() -> None:
    """Routers, adapters and gates: an eighth of the points, of which gradients a third."""
    bf16 = [case for case in BURST[:5000] if case.key["dtype"] == "bf16"]
    found = sorts.counted("gemm", bf16, H100)
    assert found["a side below 64 features"] > len(bf16) / 10
    assert found["of these gradients"] > len(bf16) / 30


def test_tokens_are_as_prompts_have_them_and_one_beside_a_tile() -> None:
    found = sorts.counted("gemm", BURST[:5000], H100)
    assert found["tokens not a multiple of 64"] > 5000 / 4
    rows = {int(case.key["m"]) % 64 for case in BURST[:5000] if case.key["kind"] == "fwd" and int(case.key["m"]) > 512}
    assert {1, 63} <= rows


def test_formats_get_only_shapes_that_torch_takes() -> None:
    for case in CASES:
        form = gemm_plan.DTYPES[str(case.key["dtype"])]
        assert int(case.key["n"]) % form.grain == 0
        assert int(case.key["k"]) % form.grain == 0
        assert int(case.key["m"]) >= form.rows_min


def test_no_kernel_is_longer_than_three_times_the_limit() -> None:
    assert max(case.estimate_s for case in BURST) <= 3 * gemm_plan.KERNEL_S


def test_blackwell_formats_are_measured_on_blackwell_alone() -> None:
    b200 = target(Database.packaged().sku("b200-sxm-180gb"))
    dtypes = {case.key["dtype"] for case in gemm_plan.cases(b200, Level.FULL)}
    assert {"mxfp8", "nvfp4"} <= dtypes
    assert not {"mxfp8", "nvfp4"} & {case.key["dtype"] for case in CASES}


@pytest.mark.parametrize(
    ("sku", "arch"),
    [("h100-sxm5-80gb", "sm_90"), ("b200-sxm-180gb", "sm_100"), ("b300-sxm-270gb", "sm_103"), ("mi300x", "gfx942")],
)
def test_every_vendors_gpu_has_a_plan_under_its_architectures_name(sku: str, arch: str) -> None:
    goal = target(Database.packaged().sku(sku))
    assert goal.arch == arch
    dtypes = {case.key["dtype"] for case in gemm_plan.cases(goal, Level.FULL)[:2000]}
    assert {"bf16", "fp16", "fp8", "fp8row"} <= dtypes


def test_small_shapes_are_measured_from_cache_and_cold() -> None:
    sets = Counter(int(case.key["sets"]) > SETS_MAX for case in BURST[:4000])
    assert sets[True] > 20


def test_one_shape_in_five_is_held_out_however_its_inputs_rotated() -> None:
    shapes = ["/".join(str(v) for name, v in case.key.items() if name != "sets") for case in BURST]
    assert 0.17 < held_out(shapes).mean() < 0.23


@given(st.lists(st.tuples(st.floats(0.1, 10), st.integers(0, 60)), min_size=1, max_size=6))
def test_interleaving_keeps_every_item_and_each_groups_order(groups: list[tuple[float, int]]) -> None:
    named = [(weight, [(g, i) for i in range(count)]) for g, (weight, count) in enumerate(groups)]
    merged = interleave(named)
    assert sorted(merged) == sorted(item for _, items in named for item in items)
    for g in range(len(groups)):
        own = [item for item in merged if item[0] == g]
        assert own == sorted(own)
