"""A name means one SKU or is an error that helps; nothing is guessed (user cases G04, G05, G07)."""

import pytest

from tilewise.hwdb import names
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, NotFound

DATABASE = Database.packaged()
GB = 1e9
GIB = 2**30


@pytest.mark.parametrize("name", DATABASE.skus())
def test_a_skus_own_name_resolves_to_itself_in_any_case(name: str) -> None:
    assert DATABASE.resolve(name) == names.Resolution(name)
    assert DATABASE.resolve(name.upper()).sku == name


@pytest.mark.parametrize(
    ("said", "sku"),
    [
        ("h100-sxm", "h100-sxm5-80gb"),
        ("H100_SXM5", "h100-sxm5-80gb"),
        ("h100-pcie", "h100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA H200 NVL", "h200-nvl-141gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA B200", "b200-sxm-180gb"),
        ("b200", "b200-sxm-180gb"),
        ("NVIDIA GB200", "gb200-186gb"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm-270gb"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI355X", "mi355x"),
    ],
)
def test_an_alias_or_a_drivers_name_means_one_sku(said: str, sku: str) -> None:
    assert DATABASE.resolve(said).sku == sku
    assert DATABASE.gpu(said).sku.name == sku


@pytest.mark.parametrize("said", ["h200", "b200", "NVIDIA B300 SXM6 AC"])
def test_an_alias_that_people_mix_up_comes_with_a_note(said: str) -> None:
    assert DATABASE.resolve(said).note


@pytest.mark.parametrize("said", ["h100", "NVIDIA H100", "H100 80GB"])
def test_g04_h100_alone_answers_with_the_variants(said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        DATABASE.gpu(said)
    assert caught.value.reason == "AMBIGUOUS_GPU"
    for shown in ("h100-sxm5-80gb (132 SMs, 989 TFLOPS dense bf16", "h100-pcie-80gb (114 SMs, 756 TFLOPS dense bf16"):
        assert shown in caught.value.message


@pytest.mark.parametrize("said", ["a100", "h800", "gh200", "mi300"])
def test_a_family_of_which_only_one_variant_is_known_is_still_ambiguous(said: str) -> None:
    with pytest.raises(InvalidInput, match="does not say which board"):
        DATABASE.resolve(said)


@pytest.mark.parametrize("said", ["V100", "h1000", "TPU v5p", "Gaudi 3", "", "NVIDIA"])
def test_g07_an_unknown_gpu_has_no_peak_and_is_told_how_to_calibrate(said: str) -> None:
    with pytest.raises(NotFound) as caught:
        DATABASE.gpu(said)
    assert caught.value.reason == "UNKNOWN_GPU"
    assert "no peak known" in caught.value.message
    assert "tilewise calibrate run --sku" in caught.value.message
    assert all(name in caught.value.message for name in DATABASE.skus())


def test_an_unknown_gpu_is_told_the_nearest_name() -> None:
    with pytest.raises(NotFound, match="nearest is b200-sxm-180gb"):
        DATABASE.gpu("b200-smx-180gb")


@pytest.mark.parametrize(
    "said",
    [
        *("RTX 4090", "NVIDIA GeForce RTX 4090", "4090", "3090 Ti", "GeForce GTX 1080", "NVIDIA L40S", "L4", "A10G"),
        *("NVIDIA RTX A6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "Tesla T4", "Quadro RTX 8000", "TITAN V"),
        *("AMD Radeon RX 7900 XTX", "Radeon Pro W7900", "NVIDIA GB10"),
    ],
)
def test_a_consumer_card_is_no_production_gpu(said: str) -> None:
    assert names.not_production(said)
    with pytest.raises(NotFound) as caught:
        DATABASE.gpu(said)
    assert caught.value.reason == "NOT_A_PRODUCTION_GPU"


@pytest.mark.parametrize("name", DATABASE.skus())
def test_no_name_of_a_production_gpu_looks_like_a_consumer_card(name: str) -> None:
    sku = DATABASE.sku(name)
    assert not any(map(names.not_production, (name, *sku.names.aliases, *sku.names.families)))


@pytest.mark.parametrize(
    ("device", "sms", "memory_bytes", "sku"),
    [
        ("NVIDIA H100 80GB HBM3", 132, 79.2 * GIB, "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", 114, 79.2 * GIB, "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", 132, 93.1 * GIB, "h100-nvl-94gb"),
        ("NVIDIA B300 SXM6 AC", 148, 270 * GB, "b300-sxm-270gb"),
        ("AMD Instinct MI300X", 304, 191.98 * GIB, "mi300x"),
    ],
)
def test_g05_a_device_is_known_when_name_sms_and_memory_agree(
    device: str, sms: int, memory_bytes: float, sku: str
) -> None:
    assert DATABASE.identify(device, sms, memory_bytes) == sku


@pytest.mark.parametrize(
    ("device", "sms", "memory_bytes"),
    [
        ("NVIDIA H100 80GB HBM3", 114, 80 * GB),
        ("NVIDIA H100 80GB HBM3", 132, 96 * GB),
        ("NVIDIA H100 80GB HBM3", 16, 10 * GB),  # a MIG slice
        ("NVIDIA B300 SXM6 AC", 152, 270 * GB),  # the other B300
    ],
)
def test_g05_a_device_whose_figures_contradict_its_name_is_refused(device: str, sms: int, memory_bytes: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        DATABASE.identify(device, sms, memory_bytes)
    assert caught.value.reason == "DEVICE_MISMATCH"


@pytest.mark.parametrize("memory_bytes", [80 * GB, 94 * GB, 96 * GB])
def test_g05_a_plain_h100_is_not_guessed_from_its_memory(memory_bytes: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        DATABASE.identify("NVIDIA H100", 132, memory_bytes)
    assert caught.value.reason == "AMBIGUOUS_GPU"
