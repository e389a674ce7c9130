"""The paths of a run on Blackwell and on ROCm, as far as they go without the card: plan, formats, driver, guard."""

import sys
from types import SimpleNamespace

import pytest

from tilewise.calibration import guard
from tilewise.calibration.driver import driver_of
from tilewise.calibration.formats import fp8_name
from tilewise.calibration.gemm_plan import cases
from tilewise.calibration.target import target
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotAvailable

GIB = 2**30


def sku(name: str):  # type: ignore[no-untyped-def]
    return Database.packaged().sku(name)


@pytest.mark.parametrize(
    ("name", "there", "absent"),
    [
        ("b200-sxm-180gb", {"bf16", "fp8", "mxfp8", "nvfp4"}, set()),
        ("b300-sxm-270gb", {"bf16", "fp8", "mxfp8", "nvfp4"}, set()),
        ("mi300x", {"bf16", "fp8", "int8"}, {"mxfp8", "nvfp4"}),
        ("mi355x", {"bf16", "fp8", "int8"}, {"nvfp4", "tf32"}),
        ("a100-sxm-80gb", {"bf16", "tf32", "int8"}, {"fp8", "mxfp8", "nvfp4"}),
    ],
)
def test_a_plan_holds_the_formats_that_the_gpu_has(name: str, there: set[str], absent: set[str]) -> None:
    planned = {str(case.key["dtype"]) for case in cases(target(sku(name)), "full")}
    assert there <= planned
    assert not planned & absent


@pytest.mark.parametrize(
    ("hip", "arch", "name"),
    [
        (None, "", "float8_e4m3fn"),
        ("6.3.42131", "gfx942:sramecc+:xnack-", "float8_e4m3fnuz"),
        ("7.0.2", "gfx950:sramecc+:xnack-", "float8_e4m3fn"),
    ],
)
def test_fp8_has_the_form_that_the_units_compute_with(hip: str | None, arch: str, name: str) -> None:
    assert fp8_name(hip, arch) == name


def test_the_form_agrees_with_the_sku_file() -> None:
    for name in ("mi300x", "mi325x", "mi350x", "mi355x"):
        arch = str(sku(name).figures["compute_capability"].value)
        fnuz = str(sku(name).figures["fp8_format"].value).startswith("FNUZ")
        assert (fp8_name("7.0", arch) == "float8_e4m3fnuz") == fnuz


def test_a_missing_amdsmi_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(NotAvailable) as error:
        driver_of("amd")
    assert error.value.reason == "DRIVER_MISSING" and "amdsmi" in error.value.message


class Silent(Exception):
    """What amdsmi raises where a question has no answer."""


def amdsmi(**answers: object) -> SimpleNamespace:
    """AMD's library as its documentation has it (amdsmi 24.6), for an idle MI300X."""

    def refuse(*_: object) -> None:
        raise Silent

    names = ("get_clock_info", "get_power_info", "get_temp_metric", "get_gpu_metrics_info", "get_gpu_asic_info",
             "get_gpu_memory_total", "get_power_cap_info", "get_gpu_activity", "get_gpu_process_list",
             "get_gpu_driver_info", "get_gpu_device_uuid")  # fmt: skip
    found = {f"amdsmi_{name}": (lambda *_, value=answers[name]: value) if name in answers else refuse for name in names}
    kind = SimpleNamespace(GFX=0, HOTSPOT=1, CURRENT=2, VRAM=3)
    return SimpleNamespace(
        amdsmi_init=lambda: None, amdsmi_get_processor_handles=lambda: ["gpu0"], AmdSmiException=Silent,
        AmdSmiClkType=kind, AmdSmiTemperatureType=kind, AmdSmiTemperatureMetric=kind, AmdSmiMemoryType=kind, **found,
    )  # fmt: skip


IDLE = {
    "get_gpu_asic_info": {"market_name": "AMD Instinct MI300X", "num_compute_units": 304},
    "get_gpu_memory_total": 192 * GIB, "get_power_cap_info": {"power_cap": 750_000_000},
    "get_clock_info": {"clk": 132, "max_clk": 2100}, "get_gpu_activity": {"gfx_activity": 0},
    "get_gpu_process_list": [], "get_gpu_driver_info": {"driver_version": "6.10.5"}, "get_gpu_device_uuid": "x",
}  # fmt: skip


def test_what_amdsmi_says_of_an_mi300x_passes_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi(**IDLE))
    facts = driver_of("amd").facts()
    assert (facts.sms, facts.power_limit_w, facts.max_clock_hz) == (304, 750.0, 2.1e9)
    assert guard.findings(facts, sku("mi300x")) == []
    assert "304 SMs, but mi355x has 256" in " ".join(guard.findings(facts, sku("mi355x")))


def test_an_amdsmi_that_answers_nothing_leaves_facts_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi())
    facts = driver_of("amd").facts()
    assert facts.sms is None and facts.power_limit_w is None and facts.max_clock_hz is None


def test_a_held_clock_on_rocm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi(**{**IDLE, "get_clock_info": {"clk": 132, "max_clk": 1300}}))
    assert "held to 1300 MHz" in " ".join(guard.findings(driver_of("amd").facts(), sku("mi300x")))
