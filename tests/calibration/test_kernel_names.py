"""Kernel names of vendor libraries, taken apart. The names are as profilers print them."""

import csv
from pathlib import Path

import pytest

from tilewise.hwdb.kernels.names import Kernel, parse, short

NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
CUTLASS = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_tn_align8>"
    "(cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_tn_align8::Params)"
)


def test_nvjet_gives_tile_stages_cluster_and_raster_in_torchs_order() -> None:
    kernel = parse(NVJET)
    expected = Kernel(
        name=NVJET, family="nvjet", arch=90, tile_m=128, tile_n=256, tile_k=64, stages=4, cluster_m=2, cluster_n=1,
        cooperative="A", raster="h", layout="TNT",
    )  # fmt: skip
    assert kernel == expected


@pytest.mark.parametrize(
    ("name", "split", "launches"),
    [
        ("nvjet_sm90_tst_64x64_64x8_4x1_v_bz_splitK_TNT", True, 1),
        (f"{NVJET}|cublasLt::splitKreduce_kernel", True, 2),
        (NVJET, False, 1),
    ],
)
def test_split_k_is_seen_in_the_name_and_in_a_second_kernel(name: str, split: bool, launches: int) -> None:
    assert (parse(name).split_k, parse(name).launches) == (split, launches)


def test_blackwells_pair_of_sms_is_seen() -> None:
    assert parse("nvjet_sm100_tst_256x128_64x5_2x2_2cta_h_bz_TNT").two_cta
    assert parse("nvjet_sm90_qqtst_128x128_128x6_4x2_h_bz_ovscale_TNT").tile_k == 128


def test_cutlass_gives_alignment_and_architecture() -> None:
    kernel = parse(short(CUTLASS))
    assert (kernel.family, kernel.arch, kernel.align) == ("cutlass", 80, 8)
    assert (kernel.tile_n, kernel.tile_m, kernel.tile_k, kernel.stages) == (128, 256, 32, 3)


def test_older_tensor_kernels_without_stages_are_known() -> None:
    kernel = parse("cutlass_75_tensorop_s1688gemm_bf16_128x128_tn_align1")
    assert (kernel.arch, kernel.align, kernel.tile_m) == (75, 1, 128)


def test_fp32_kernels_and_amd_kernels_are_known() -> None:
    xmma = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x"
    assert (parse(xmma).family, parse(xmma).tile_n, parse(xmma).tile_m) == ("xmma", 128, 64)
    tensile = parse("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN")
    assert (tensile.family, tensile.tile_n, tensile.tile_m) == ("tensile", 256, 192)


def test_what_is_not_known_says_so() -> None:
    assert parse("my_kernel").family == ""
    assert parse("").family == ""


def test_short_names_lose_arguments_and_keep_templates() -> None:
    assert short(CUTLASS) == "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_tn_align8"
    assert short("void at::native::vec<4, float>(int, (anonymous namespace)::F)") == "vec<4,float>"
    assert len(short("void f<" + "x, " * 200 + ">(int)")) <= 120


def test_every_kernel_of_the_referees_table_is_recognised(shared: Path) -> None:
    with (shared / "truth" / "h100" / "gemm.csv").open(newline="") as stream:
        names = {row["kernel"] for row in csv.DictReader(stream)}
    assert {name for name in names if name and not parse(short(name)).family} == set()
