"""Casts to narrow formats: as torchao launches them eagerly, and as inductor makes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.table import OP_CODES
from tilewise.server.architecture import read
from tilewise.server.operators import build
from tilewise.server.workload import Workload

LLAMA = read((Path(__file__).resolve().parents[3] / "examples" / "llama-3-8b.json").read_text(encoding="utf-8"))


def casts(**work: object) -> dict[tuple[str, str], tuple[float, float]]:
    """(kernels, bytes) of a step's casts by name and direction."""
    table = build(LLAMA, Workload(**work))  # type: ignore[arg-type]
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for row in range(len(table)):
        label = table.labels[table.label[row]]
        if label.name.startswith("quantize"):
            kernels, moved = found.get((label.name, label.direction), (0.0, 0.0))
            size = table.bytes_read[row] + table.bytes_written[row]
            found[label.name, label.direction] = (
                kernels + table.count[row] * table.kernels[row],
                moved + table.count[row] * size,
            )
    return found


TRAIN = {"phase": "train", "sequence": 1024, "precision": "fp8"}


def test_an_eager_tensor_cast_launches_the_twelve_kernels_of_torchao_for_each_reader() -> None:
    forward = casts(**TRAIN, mode="eager")
    # q, k, v, o, gate, up and down of 32 layers; abs, max, six on the scale, to fp32, scale, clamp, to fp8
    assert forward["quantize", "forward"][0] == forward["quantize_weight", "forward"][0] == 32 * 7 * 12
    assert forward["quantize_gradient", "backward"][0] == 32 * 7 * (2 * 12 + 1)


def test_compiled_casts_move_a_fifth_of_what_eager_ones_do() -> None:
    eager, compiled = (casts(**TRAIN, mode=mode)["quantize_weight", "forward"] for mode in ("eager", "compiled"))
    weights = sum(layer for layer in (4096 * 4096 * 2, 4096 * 1024 * 2, 3 * 4096 * 14336)) * 32
    assert compiled[1] == pytest.approx(5 * weights, rel=0.01)  # read twice in 16 bits, written in 8
    assert eager[1] == pytest.approx((4 + 2 + 6 + 16 + 5) * weights, rel=0.01)


def test_serving_has_its_weights_cast_before() -> None:
    assert set(casts(phase="prefill", sequence=1024, precision="fp8")) == {("quantize", "forward")}


def test_a_row_scaled_cast_needs_no_pass_for_the_scale_when_compiled() -> None:
    by_tensor, by_row = (
        casts(phase="prefill", sequence=1024, precision=name, mode="compiled")["quantize", "forward"]
        for name in ("fp8", "fp8_row")
    )
    assert by_row[0] == by_tensor[0] / 2 and by_row[1] < by_tensor[1]


def test_other_formats_are_cast_in_one_pass() -> None:
    table = build(LLAMA, Workload(phase="train", sequence=1024, precision="mxfp8", mode="eager"))
    names = np.array([label.name for label in table.labels])
    rows = np.char.startswith(names[table.label], "quantize")
    assert rows.any() and set(table.op[rows]) == {OP_CODES["quantize"]}
