"""The guard: what it refuses, in which words. Facts are what the driver would say."""

import pytest
from msgspec.structs import replace

from tilewise.calibration import guard
from tilewise.calibration.driver import Facts
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotAvailable

SKU = Database.packaged().sku("h100-sxm5-80gb")
GOOD = Facts(
    name="NVIDIA H100 80GB HBM3", sms=132, memory_bytes=85_520_809_984, driver="580.159.04", ecc=True, power_limit_w=700.0,
    max_clock_hz=1.98e9, clock_hz=345e6, temperature_c=31.0, utilisation=0.0,
)  # fmt: skip
REFUSED = [
    (replace(GOOD, name="NVIDIA GeForce RTX 4090"), "consumer or workstation"),
    (replace(GOOD, name="NVIDIA RTX 6000 Ada Generation"), "consumer or workstation"),
    (replace(GOOD, name="NVIDIA H100 PCIe"), "no name of h100-sxm5-80gb"),
    (replace(GOOD, sms=114), "114 SMs, but h100-sxm5-80gb has 132"),
    (replace(GOOD, memory_bytes=100_485_038_080), "100 GB of memory"),
    (replace(GOOD, mig=True), "MIG"),
    (replace(GOOD, other_processes=2), "2 other process(es)"),
    (replace(GOOD, utilisation=0.37), "37% busy"),
    (replace(GOOD, ecc=False), "ECC is off"),
    (replace(GOOD, power_limit_w=500.0), "500 W, below the 700 W"),
    (replace(GOOD, throttle=("hardware thermal",)), "throttled now (hardware thermal)"),
    (replace(GOOD, max_clock_hz=1.41e9), "held to 1410 MHz"),
]


def test_a_healthy_gpu_of_the_sku_is_accepted() -> None:
    assert guard.findings(GOOD, SKU) == []
    assert guard.check(GOOD, SKU)


@pytest.mark.parametrize(("facts", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_would_be_a_lie_is_refused_in_one_line(facts: Facts, words: str) -> None:
    with pytest.raises(NotAvailable) as refusal:
        guard.check(facts, SKU)
    assert words in refusal.value.message
    assert "\n" not in refusal.value.message
    assert refusal.value.reason == "CALIBRATION_REFUSED"


def test_allow_nonproduction_measures_but_marks() -> None:
    assert guard.check(replace(GOOD, ecc=False), SKU, allow_nonproduction=True) is False


def test_idle_and_power_cap_are_no_throttling() -> None:
    assert guard.findings(replace(GOOD, throttle=("power cap",)), SKU) == []


def test_what_the_driver_does_not_say_is_not_held_against_the_gpu() -> None:
    assert guard.findings(Facts(name="NVIDIA H100 80GB HBM3"), SKU) == []
