"""What the GPU's driver says, through NVML or amdsmi: the only place that asks it."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from typing import Any, Protocol

from tilewise.calibration.protocol import Telemetry
from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.record import Record


class Facts(Record, kw_only=True):
    """State of one GPU before a calibration. None: the driver does not say."""

    name: str
    vendor: str = "nvidia"
    sms: int | None = None
    memory_bytes: int | None = None
    driver: str = ""
    ecc: bool | None = None
    power_limit_w: float | None = None
    max_clock_hz: float | None = None
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    utilisation: float | None = None  # 0..1, before we start
    other_processes: int = 0
    mig: bool = False
    serial: str = ""  # a short hash of the UUID: tells two machines apart, names none


class Driver(Protocol):
    """What the protocol asks while it runs."""

    def facts(self) -> Facts: ...
    def telemetry(self) -> Telemetry: ...
    def clock_hz(self) -> float: ...


class NoDriver:
    """For the CPU rehearsal."""

    def facts(self) -> Facts:
        import platform

        return Facts(name=f"CPU {platform.machine()}", vendor="cpu")

    def telemetry(self) -> Telemetry:
        return Telemetry()

    def clock_hz(self) -> float:
        return math.nan


# nvml.h, nvmlClocksEventReasons: bit -> what it means. Bit 0 (idle) and 1 (application clocks) are no throttling.
THROTTLE_BITS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
}


CORES_PER_SM = 128  # fp32 lanes, which NVML counts as cores; GA100 (A100, A30) has 64


class Nvml:
    """NVIDIA's management library, for the GPU that is torch's number `index`."""

    def __init__(self, index: int) -> None:
        import pynvml

        # as NVML counts; must be set before torch starts CUDA
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        name = visible[index] if visible else str(index)
        if name.isdigit():
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(name)

    def _ask(self, function: str, *arguments: object) -> Any:
        """A value, or None where this GPU or driver does not support the question."""
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def clock_hz(self) -> float:
        found = self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        return math.nan if found is None else found * 1e6

    def throttle(self) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)

    def telemetry(self) -> Telemetry:
        power_mw = self._ask("nvmlDeviceGetPowerUsage")
        celsius = self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)
        return Telemetry(
            power_w=math.nan if power_mw is None else power_mw / 1e3,
            temperature_c=math.nan if celsius is None else float(celsius),
            throttle="+".join(self.throttle()),
        )

    def facts(self) -> Facts:
        nvml = self._nvml
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        ecc = self._ask("nvmlDeviceGetEccMode")
        mig = self._ask("nvmlDeviceGetMigMode")
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        name = _text(self._ask("nvmlDeviceGetName"))
        cores = self._ask("nvmlDeviceGetNumGpuCores")
        return Facts(
            name=name,
            sms=None if cores is None else cores // (64 if "A100" in name or "A30" in name else CORES_PER_SM),
            memory_bytes=memory and memory.total,
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            ecc=None if ecc is None else bool(ecc[0]),
            power_limit_w=None if limit_mw is None else limit_mw / 1e3,
            max_clock_hz=_mega(self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)),
            clock_hz=_mega(self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)),
            memory_clock_hz=_mega(self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)),
            temperature_c=self.telemetry().temperature_c,
            throttle=self.throttle(),
            utilisation=None if rates is None else rates.gpu / 100,
            other_processes=self._others(),
            mig=bool(mig and mig[0]),
            serial=_hash(_text(self._ask("nvmlDeviceGetUUID"))),
        )

    def _others(self) -> int:
        """Processes on the GPU. Ask before torch starts CUDA: in a container our own would look like another's."""
        running = self._ask("nvmlDeviceGetComputeRunningProcesses") or []
        return sum(process.pid != os.getpid() for process in running)


class AmdSmi:
    """AMD's management library, for the GPU of this index."""

    def __init__(self, index: int) -> None:
        import amdsmi  # type: ignore[import-not-found, unused-ignore]

        amdsmi.amdsmi_init()
        self._smi: Any = amdsmi
        self._handle = amdsmi.amdsmi_get_processor_handles()[index]

    def _ask(self, question: Callable[[], Any]) -> Any:
        with contextlib.suppress(self._smi.AmdSmiException, KeyError, AttributeError):
            return question()
        return None

    def clock_hz(self) -> float:
        smi = self._smi
        found = self._ask(lambda: smi.amdsmi_get_clock_info(self._handle, smi.AmdSmiClkType.GFX)["clk"])
        return math.nan if found is None else float(found) * 1e6

    def telemetry(self) -> Telemetry:
        smi = self._smi
        power = self._ask(lambda: smi.amdsmi_get_power_info(self._handle)["current_socket_power"])
        hot = self._ask(
            lambda: smi.amdsmi_get_temp_metric(
                self._handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            )
        )
        status = self._ask(lambda: smi.amdsmi_get_gpu_metrics_info(self._handle)["throttle_status"])
        return Telemetry(
            power_w=math.nan if power is None else float(power),
            temperature_c=math.nan if hot is None else float(hot),
            throttle="throttled" if status else "",
        )

    def facts(self) -> Facts:
        smi, handle = self._smi, self._handle
        name = self._ask(lambda: smi.amdsmi_get_gpu_asic_info(handle)["market_name"])
        total = self._ask(lambda: smi.amdsmi_get_gpu_memory_total(handle, smi.AmdSmiMemoryType.VRAM))
        limit = self._ask(lambda: smi.amdsmi_get_power_cap_info(handle)["power_cap"])  # microwatts
        activity = self._ask(lambda: smi.amdsmi_get_gpu_activity(handle)["gfx_activity"])
        others = self._ask(lambda: smi.amdsmi_get_gpu_process_list(handle)) or []
        top = self._ask(lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)["max_clk"])
        driver = self._ask(lambda: smi.amdsmi_get_gpu_driver_info(handle)["driver_version"])
        uuid = self._ask(lambda: smi.amdsmi_get_gpu_device_uuid(handle))
        return Facts(
            name=_text(name),
            vendor="amd",
            sms=self._ask(lambda: smi.amdsmi_get_gpu_asic_info(handle)["num_compute_units"]),
            memory_bytes=total,
            driver=_text(driver),
            power_limit_w=None if limit is None else float(limit) / 1e6,
            max_clock_hz=_mega(top),
            clock_hz=self.clock_hz(),
            temperature_c=self.telemetry().temperature_c,
            utilisation=None if activity is None else float(activity) / 100,
            other_processes=sum(getattr(process, "pid", os.getpid()) != os.getpid() for process in others),
            serial=_hash(_text(uuid)),
        )


def driver_of(vendor: str, index: int = 0) -> Driver:
    """The management library of a vendor. Raises NotAvailable where it is missing or sees no GPU."""
    makers: dict[str, Callable[[int], Driver]] = {"nvidia": Nvml, "amd": AmdSmi, "cpu": lambda _: NoDriver()}
    try:
        return makers[vendor](index)
    except ImportError as error:
        message = f"{vendor} needs the Python package of {error.name}: pip install 'tilewise[calibrate]'"
        raise NotAvailable(message, reason="DRIVER_MISSING") from error
    except Exception as error:  # each library has its own exception family
        raise NotAvailable(f"no {vendor} GPU answers: {error}", reason="NO_GPU") from error


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _mega(value: Any) -> float | None:
    return None if value is None else float(value) * 1e6


def _hash(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:8]
