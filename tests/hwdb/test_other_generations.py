"""GPUs of other generations keep their own kernels, tiles and waves: nothing of Hopper's is told of them."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Phase
from tilewise.server.architecture import read
from tilewise.server.operators import build
from tilewise.server.step.time import launches
from tilewise.server.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "stress"))
from search_physics import asked

DATABASE = Database.packaged()
OTHERS = [sku for sku in DATABASE.skus() if DATABASE.sku(sku).generation != "hopper"]


@pytest.mark.parametrize("sku", OTHERS)
def test_no_kernel_of_another_generation_is_named(sku: str) -> None:
    gpu = DATABASE.gpu(sku)
    times = gpu.predict(asked(gpu.sku, 0))
    named = {times.kernel_names[at] for at in times.kernel[times.kernel >= 0].tolist()}
    assert not [name for name in named if "sm90" in name or "sm80" in name]


@pytest.mark.parametrize("sku", ["b200-sxm-180gb", "gb200-186gb"])
def test_an_attention_that_is_carried_over_has_no_waves_over_another_gpus_sms(sku: str) -> None:
    """The H100's 132 SMs made its waves."""
    gpu = DATABASE.gpu(sku)
    table = asked(gpu.sku, 0)
    rows = table.select((table.kind == Kind.ATTENTION) & (table.phase == Phase.BACKWARD))
    times = gpu.predict(rows)
    assert (times.waves == 0).all() and (times.tiles == 0).all()


@pytest.mark.parametrize("sku", ["b200-sxm-180gb", "a100-sxm-80gb"])
def test_the_counters_that_hoppers_products_clear_are_counted_on_no_other_gpu(sku: str) -> None:
    table = build(read((ROOT / "examples" / "llama-3-8b.json").read_text()), Workload(phase="train", sequence=4096))
    gpu, hopper = DATABASE.gpu(sku), DATABASE.gpu("h100-sxm5-80gb")
    assert (launches(table, gpu, gpu.predict(table)) == table.kernels).all()
    assert launches(table, hopper, hopper.predict(table)).sum() > np.sum(table.kernels)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP8, Precision.FP8_BLOCK, Precision.MXFP4])
def test_the_mi355x_is_never_slower_than_the_mi350x_of_the_same_dies(precision: Precision) -> None:
    """By two fits to the same table, which names the die alone, it was in 66 % of bf16 shapes."""
    faster, slower = DATABASE.gpu("mi355x"), DATABASE.gpu("mi350x")
    table = asked(faster.sku, 3, 400)
    products = table.select(table.kind == Kind.GEMM)
    products = replace(products, precision=np.full(len(products), int(precision)))
    times, others = faster.predict(products), slower.predict(products)
    answered = ~(times.refused | others.refused)
    assert (times.time_s <= 1.001 * others.time_s)[answered].all()
    assert ((times.low_s <= times.time_s) & (times.time_s <= times.high_s))[answered].all()


def test_blackwells_tiles_are_not_hoppers() -> None:
    tiles = assumptions()["tile"]
    assert [256, 256, 1.0] in tiles["blackwell"] and tiles["hopper"] != tiles["blackwell"]
