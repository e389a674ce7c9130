"""Repeated questions are answered from memory, and only the same question is the same."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.table import Kind, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State


@pytest.fixture(scope="module")
def h100() -> Gpu:
    return Database.packaged().gpu("h100-sxm5-80gb")


def product(m: int, count: int = 1) -> OperatorTable:
    columns = {
        "kind": [int(Kind.GEMM)], "precision": [3], "m": [m], "n": [4096], "k": [4096], "count": [count], "output_bytes": [2.0],
        "flops": [2.0 * m * 4096 * 4096], "executed_flops": [2.0 * m * 4096 * 4096], "bytes_read": [1e8], "bytes_written": [1e7],
    }  # fmt: skip
    label = Label(name="x", layer="", part="")
    return table_from_columns([label], 1, 1, {name: np.array(value) for name, value in columns.items()})


def test_the_same_rows_have_the_same_times_however_often_they_repeat(h100: Gpu) -> None:
    first = h100.predict(product(512)).time_s[0]
    assert h100.predict(product(512, count=7)).time_s[0] == first


def test_another_size_is_another_question(h100: Gpu) -> None:
    assert h100.predict(product(4096)).time_s[0] > 2 * h100.predict(product(512)).time_s[0]


def test_the_state_is_part_of_the_question(h100: Gpu) -> None:
    large = product(16384)
    assert h100.predict(large, State.SUSTAINED).time_s[0] > h100.predict(large, State.BURST).time_s[0]


def test_another_gpu_does_not_answer_from_this_ones_memory(h100: Gpu) -> None:
    a100 = Database.packaged().gpu("a100-sxm-80gb")
    assert a100.predict(product(512)).time_s[0] > h100.predict(product(512)).time_s[0]
