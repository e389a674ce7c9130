"""Workloads that make no sense are refused in one line that says what would."""

import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.times import State
from tilewise.server.workload import Workload


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"phase": "training"}, "phase", "did you mean 'train'?"),
        ({"phase": "train", "sequence": 0}, "sequence", "sequence is needed for train"),
        ({"phase": "decode", "sequence": 10}, "context", "context is needed for decode"),
        ({"sequence": -5}, "sequence", "-5"),
        ({"sequence": 2**60}, "sequence", "out of range"),
        ({"batch": 2**20, "sequence": 2**20}, "batch", "times 1048576 tokens is out of range"),
        ({"sequence": 128, "batch": 1.5}, "batch", "whole number"),
        ({"sequence": 128, "precision": "fp7"}, "precision", "allowed are fp64, fp32"),
        ({"sequence": 128, "phase": "prefill", "recompute": "full"}, "recompute", "needs phase 'train'"),
        ({"sequence": 128, "phase": "prefill", "optimizer": "adamw"}, "optimizer", "has no step"),
        ({"sequence": 128, "logits": "last"}, "logits", "every position"),
    ],
)
def test_a_senseless_workload_is_refused_in_one_line(options: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Workload(**options)  # type: ignore[arg-type]
    assert error.value.field == f"workload.{field}" and words in error.value.message
    assert "\n" not in error.value.message


def test_defaults_follow_the_phase() -> None:
    train, prefill = Workload(sequence=8), Workload(phase="prefill", sequence=8)
    assert (train.optimizer, train.logits, train.clock) == ("adamw", "all", State.SUSTAINED)
    assert (prefill.optimizer, prefill.logits, prefill.clock) == ("none", "last", State.SUSTAINED)


def test_tokens_of_a_step() -> None:
    assert Workload(batch=4, sequence=8).tokens == 32
    assert Workload(phase="decode", batch=4, context=8).tokens == 4
