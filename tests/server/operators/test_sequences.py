"""The table of kernel sequences, and the keys by which families name them."""

import re

import pytest

from tilewise.hwdb.table import kernel_codes
from tilewise.server.operators.sequences import KINDS, PARTS, TABLE, Operands, launch, launches
from tilewise.server.operators.variants import VARIANTS, Variant

NAMED = {
    "rope": "ropes", "scores": "scores", "router": "routers", "weights": "weights", "activation": "activations",
    "indexer_rope": "ropes", "scales_queries": "operations",
}  # fmt: skip


def test_a_launch_is_times_kernel_operands_and_options() -> None:
    found = launch("3 mul.row fr>a special/row share=0.5 kernels=2")
    assert (found.op, found.variant) == kernel_codes("mul.row")
    assert (found.times, found.share, found.kernels, found.special, found.special_per) == (3, 0.5, 2, 1, "row")
    assert found.wide and found.whole
    assert found.read.bytes(8, 4, 32, 2) == 32 * 4 + 8 * 4 and found.written == Operands.of("a")


def test_lift_and_lower_exist_in_models_of_16_bit_alone() -> None:
    lift, middle, lower = launches("lift, add ff>f, lower")
    assert lift.only_narrow and lower.only_narrow and not middle.only_narrow


def test_every_part_of_the_table_is_used() -> None:
    written = " ".join(str(TABLE[kind]) for kind in TABLE)
    assert not [name for name in TABLE["parts"] if not re.search(rf"@{name}\b", written)]
    assert all("@" + name not in PARTS[name] for name in PARTS)


@pytest.mark.parametrize("family", VARIANTS)
def test_a_family_names_sequences_that_exist(family: str) -> None:
    for field, kind in NAMED.items():
        name = getattr(VARIANTS[family], field)
        assert name in KINDS[kind] or name in ("", "every_expert"), field
    for shape, weighted in (("rms", True), ("rms", False), ("layer", True)):
        assert Variant.norm_of(VARIANTS[family], shape, weighted) in KINDS["norms"]


@pytest.mark.parametrize("kind", ["norms", "ropes", "activations"])
def test_what_has_a_gradient_launches_something_both_ways(kind: str) -> None:
    assert all(sequence.forward and sequence.backward for sequence in KINDS[kind].values())
