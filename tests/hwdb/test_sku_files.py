"""Every SKU file is true to its sources, and what cannot be true is refused."""

import csv
from importlib.resources import files
from pathlib import Path

import pytest

from tilewise.hwdb import sku_file
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.times import Trust

DATABASE = Database.packaged()
CSV_NAMES = {
    "A100_SXM_80GB": "a100-sxm-80gb",
    "H100_SXM5": "h100-sxm5-80gb",
    "H100_PCIe": "h100-pcie-80gb",
    "H100_NVL": "h100-nvl-94gb",
    "H200_SXM": "h200-sxm-141gb",
    "H200_NVL": "h200-nvl-141gb",
    "H20_SXM": "h20-sxm-96gb",
    "H800_SXM": "h800-sxm-80gb",
    "GH200_96GB": "gh200-96gb",
    "B100": "b100-sxm-192gb",
    "B200_SXM": "b200-sxm-180gb",
    "GB200_per_GPU": "gb200-186gb",
    "B300_SXM": "b300-sxm-270gb",
    "GB300_per_GPU": "gb300-279gb",
    "MI300X": "mi300x",
    "MI325X": "mi325x",
    "MI350X": "mi350x",
    "MI355X": "mi355x",
}
CSV_FIGURES = {  # csv field: (our key, our unit in theirs)
    "sm_count": ("sm_count", 1),
    "clock_boost": ("clock_boost_hz", 1e6),
    "clock_for_tensor_peak": ("clock_tensor_hz", 1e6),
    "hbm_capacity": ("hbm_bytes", 1e9),
    "hbm_bandwidth": ("hbm_bytes_per_s", 1e12),
    "nvlink_per_dir": ("link_bytes_per_s", 1e9),
    "xgmi_per_dir_total": ("link_bytes_per_s", 1e9),
    "pcie_per_dir": ("pcie_bytes_per_s", 1e9),
    "tdp": ("tdp_w", 1),
    "sfu_per_clk_per_sm": ("exp_per_clock_per_sm", 1),
    "transcendental_per_clk_per_cu": ("exp_per_clock_per_sm", 1),
    "shared_mem_per_sm": ("shared_memory_per_sm_bytes", 1024),
    "register_file_per_sm": ("register_file_per_sm_bytes", 1024),
    "lds_per_cu": ("shared_memory_per_sm_bytes", 1024),
}


def text_of(name: str) -> str:
    return (DATABASE.folder / "skus" / f"{name}.toml").read_text(encoding="utf-8")


def test_the_18_skus_of_the_facts_table_are_there() -> None:
    assert set(DATABASE.skus()) == set(CSV_NAMES.values())


@pytest.mark.parametrize("name", DATABASE.skus())
def test_every_figure_has_a_source_with_a_mark(name: str) -> None:
    sku = DATABASE.sku(name)
    figures = [*sku.figures.values(), *sku.peaks.values(), *sku.flops_per_clock.values(), *sku.ceilings.values()]
    assert len(figures) > 30
    assert all(figure.source and figure.mark in {"K", "S", "D", "R", "M", "3"} for figure in figures)


@pytest.mark.parametrize("name", DATABASE.skus())
def test_every_source_is_used(name: str) -> None:
    text = text_of(name)
    body, sources = text.split("[sources]\n")
    keys = [line.split(" = ")[0] for line in sources.splitlines()]
    assert keys
    assert [key for key in keys if f'"{key}"' not in body] == []


@pytest.mark.parametrize("name", DATABASE.skus())
def test_a_peak_is_sms_times_clock_times_flop_per_clock_or_says_why_not(name: str) -> None:
    sku = DATABASE.sku(name)
    for key, figure in sku.peaks.items():
        if key in sku.unproven:
            assert len(sku.unproven[key]) > 20
        else:
            product = sku.sm_count * sku.clock_hz(key) * float(sku.flops_per_clock[key].value)
            assert float(figure.value) == pytest.approx(product, rel=0.03)


@pytest.mark.parametrize("name", DATABASE.skus())
def test_no_reason_is_given_for_a_peak_that_is_proven(name: str) -> None:
    sku = DATABASE.sku(name)
    for key in sku.unproven:
        product = (
            sku.sm_count * sku.clock_hz(key) * float(sku.flops_per_clock[key].value)
            if key in sku.flops_per_clock
            else 0
        )
        assert float(sku.peaks[key].value) != pytest.approx(product, rel=0.03)


def test_figures_equal_the_facts_table(shared: Path) -> None:
    compared = 0
    text = (shared / "hardware-facts.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        sku = DATABASE.sku(CSV_NAMES[row["sku"]])
        if row["field"] in CSV_FIGURES:
            key, unit = CSV_FIGURES[row["field"]]
            assert sku.number(key) == pytest.approx(float(row["value"]) * unit), (sku.name, key)
            compared += 1
        elif row["field"].startswith("peak_dense_"):
            key = row["field"].removeprefix("peak_dense_").replace("_tensor", "_matrix")
            if key != "fp32_matrix":  # the same rate as fp32 on AMD
                assert float(sku.peaks[key].value) == pytest.approx(float(row["value"]) * 1e12), (sku.name, key)
                compared += 1
    assert compared > 300


def test_g03_pcie_is_756_dense_with_114_sms_and_two_terabytes() -> None:
    sku = DATABASE.sku("h100-pcie-80gb")
    assert sku.peak(Precision.BF16).tflops == 756
    assert sku.sm_count == 114
    assert sku.hbm_bytes_per_s == pytest.approx(2.0e12, rel=0.02)
    assert clock_product("h100-pcie-80gb") == pytest.approx(756.4, abs=0.1)
    assert clock_product("h100-sxm5-80gb") == pytest.approx(989.4, abs=0.1)


def clock_product(name: str) -> float:
    sku = DATABASE.sku(name)
    return sku.sm_count * 4096 * sku.clock_hz("bf16") / 1e12


def test_g61_reached_bandwidth_is_a_figure_of_its_own() -> None:
    fractions = {
        name: DATABASE.sku(name).ceilings["hbm_bytes_per_s"].value / DATABASE.sku(name).hbm_bytes_per_s
        for name in ("mi300x", "h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
    }
    assert fractions.pop("mi300x") == pytest.approx(0.80, abs=0.04)
    assert all(fraction == pytest.approx(0.90, abs=0.04) for fraction in fractions.values())


def test_ceilings_carry_their_trust() -> None:
    ceiling = DATABASE.sku("h100-sxm5-80gb").ceilings["gemm_bf16_sustained_flops_per_s"]
    assert ceiling.value == 794.5e12
    assert ceiling.trust is Trust.PUBLISHED
    assert "ml-engineering" in ceiling.source


def test_fp8_of_mi300x_is_marked_as_fnuz() -> None:
    assert "fp8 (FNUZ form, not OCP)" in DATABASE.sku("mi300x").formats()
    assert "fp8" in DATABASE.sku("mi355x").formats()


GOOD = text_of("h100-sxm5-80gb")
REJECTED = {
    "more memory than 2 TiB": ("hbm_bytes = [80.0e9", "hbm_bytes = [3.0e12", "hbm_bytes is 3e+12, outside"),
    "more bandwidth than 100 TB/s": ("hbm_bytes_per_s = [3.35e12", "hbm_bytes_per_s = [335e12", "outside"),
    "no memory": ("hbm_bytes = [80.0e9", "hbm_bytes = [0", "hbm_bytes is 0, outside"),
    "a missing source": ('tdp_w = [700, "datasheet"]', "tdp_w = [700]", "tdp_w must be [value, source]"),
    "an unknown source": ('tdp_w = [700, "datasheet"]', 'tdp_w = [700, "hearsay"]', "holds no 'hearsay'"),
    "a missing mark": (
        'datasheet = "NVIDIA H100 datasheet [K]"',
        'datasheet = "NVIDIA H100 datasheet"',
        "without a mark",
    ),
    "a sparse rate": ("bf16 = [989.4e12", "bf16 = [1978.9e12", "a sparse rate; only dense ones exist here"),
    "a peak that nothing explains": ("bf16 = [989.4e12", "bf16 = [1200e12", "without a reason in [unproven]"),
    "a rate without FLOP per clock": ("tf32 = [2048", "nvfp4 = [2048", "no FLOP per clock"),
    "an efficiency above one": (
        "gemm_bf16_flops_per_s = [854e12",
        "gemm_bf16_flops_per_s = [1000e12",
        "outside (0, 1]",
    ),
    "a bandwidth efficiency above one": ("[2.9465e12", "[3.9e12", "outside (0, 1]"),
    "a ceiling without trust": ('"burst", "published"]', '"burst"]', 'must be [value, source, "published"'),
    "an unknown key": ("tdp_w =", "tdp_watt =", "unknown tdp_watt; known are"),
    "an unknown section": ("[figures]", "[figurines]", "unknown figurines"),
    "a missing figure": ('tdp_w = [700, "datasheet"]\n', "", "figures lacks tdp_w"),
    "a word where a number belongs": ("sm_count = [132", 'sm_count = ["132"', "must be a number, not '132'"),
    "another SKU's name": ('name = "h100-sxm5-80gb"', 'name = "h100"', "must be the file's own name"),
    "a key given twice": ("tdp_w = [700", 'dies = [1, "datasheet"]\ntdp_w = [700', "is not TOML"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_a_file_is_refused_that_has(case: str) -> None:
    old, new, said = REJECTED[case]
    assert old in GOOD
    with pytest.raises(InvalidInput) as caught:
        sku_file.read(GOOD.replace(old, new, 1), "h100-sxm5-80gb")
    assert caught.value.reason == "BAD_SKU_FILE"
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert "h100-sxm5-80gb.toml" in caught.value.message


def test_no_two_skus_share_a_name_or_an_alias() -> None:
    names = [name for sku in map(DATABASE.sku, DATABASE.skus()) for name in (sku.name, *sku.names.aliases)]
    families = {name for sku in map(DATABASE.sku, DATABASE.skus()) for name in sku.names.families}
    assert len(names) == len(set(names))
    assert not families & set(names)


def test_a_generation_that_nobody_knows_is_refused_with_the_known_ones_and_the_nearest() -> None:
    text = (files("tilewise.hwdb") / "skus" / "h100-sxm5-80gb.toml").read_text(encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        sku_file.read(text.replace('generation = "hopper"', 'generation = "hoper"'), "h100-sxm5-80gb")
    assert "'hoper' is not known: allowed are ampere, hopper" in caught.value.message
    assert caught.value.message.endswith("did you mean 'hopper'?")


def test_every_fraction_that_differs_by_generation_is_there_for_every_known_one() -> None:
    for by_generation in (value for value in assumptions()["fraction"].values() if isinstance(value, dict)):
        assert set(by_generation) == set(sku_file.GENERATIONS)
