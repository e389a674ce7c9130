"""Sku: one orderable GPU as its datasheet and published runs describe it; every figure with its source and mark.

Marks: S read in the vendor's text or source code, K vendor figure quoted from memory, D derived by arithmetic,
R run by us on a CPU, 3 third party or press.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import Trust

VECTOR_RATES = ("fp64", "fp32")  # not on the matrix units: these run at the boost clock


class Figure(Record):
    """A value with where it comes from. mark is one of K, S, D, 3, R; see the module."""

    value: float | str
    source: str
    mark: str


class Ceiling(Record):
    """The best rate (or smallest time) that somebody measured on this SKU."""

    value: float
    source: str
    mark: str
    trust: Trust


class Names(Record):
    """What people and drivers call the SKU.

    aliases:  names that mean this SKU alone; a driver's device name in lower case with dashes is one
    families: names too short to tell the variants apart; they never resolve
    note:     what to know when an alias was used
    """

    aliases: tuple[str, ...]
    families: tuple[str, ...]
    note: str = ""


class Peak(Record):
    """The rate that a utilisation is divided by: dense, FLOP/s (int8: operation/s), stated at clock_hz.

    clock_max_hz: the highest clock the GPU runs, which may lie above (1980 against 1830 MHz on H100 SXM)
    """

    sku: str
    key: str
    flops_per_s: float
    clock_hz: float
    clock_max_hz: float
    source: str
    mark: str
    kind: str = "dense"

    @property
    def tflops(self) -> float:
        return self.flops_per_s / 1e12

    def __str__(self) -> str:
        return f"{self.tflops:.1f} TFLOPS {self.kind} {self.key} of {self.sku} at {self.clock_hz / 1e6:.0f} MHz"


class Sku(Record, kw_only=True, eq=False):
    """One SKU file. Sizes in bytes, rates per second, clocks in Hz; per SM means per compute unit on AMD.

    figures:  datasheet facts by key, units in the keys
    peaks:    dense FLOP/s by precision key; flops_per_clock: FLOP per clock and SM by the same keys
    unproven: why SMs x clock x FLOP per clock does not give a peak within 3 %, by precision key
    ceilings: best published rates by key
    """

    name: str
    title: str
    vendor: str
    generation: str
    names: Names
    notes: tuple[str, ...]
    figures: Mapping[str, Figure]
    peaks: Mapping[str, Figure]
    flops_per_clock: Mapping[str, Figure]
    unproven: Mapping[str, str]
    ceilings: Mapping[str, Ceiling]

    def number(self, key: str) -> float:
        """A figure as a number; KeyError where the file lacks it."""
        return float(self.figures[key].value)

    @cached_property
    def sm_count(self) -> int:
        return int(self.number("sm_count"))

    @property
    def hbm_bytes(self) -> float:
        """Capacity as it is sold. Vendors' GB are often GiB: 80 "GB" are 85.5e9 bytes on the device."""
        return self.number("hbm_bytes")

    @property
    def memory_bytes(self) -> float:
        """What the driver reports as total where that is known, else the capacity as it is sold."""
        return self.number("device_memory_bytes" if "device_memory_bytes" in self.figures else "hbm_bytes")

    @cached_property
    def hbm_bytes_per_s(self) -> float:
        """Datasheet bandwidth. What is reached stands in ceilings["hbm_bytes_per_s"]."""
        return self.number("hbm_bytes_per_s")

    @cached_property
    def l2_bytes(self) -> float:
        return self.number("l2_bytes")

    @cached_property
    def last_level_bytes(self) -> float:
        """The cache in front of device memory: AMD's Infinity Cache where there is one, else the L2."""
        return self.number("last_level_cache_bytes") if "last_level_cache_bytes" in self.figures else self.l2_bytes

    @property
    def tdp_w(self) -> float:
        return self.number("tdp_w")

    @cached_property
    def clock_boost_hz(self) -> float:
        """Highest clock; the tensor-peak clock where no boost clock is published."""
        return self.number("clock_boost_hz" if "clock_boost_hz" in self.figures else "clock_tensor_hz")

    def clock_hz(self, key: str) -> float:
        """The clock at which the peak of a precision key is stated."""
        return self.clock_boost_hz if key.startswith(VECTOR_RATES) else self.number("clock_tensor_hz")

    @property
    def exp_per_s(self) -> float:
        """exp (and tanh, rsqrt) evaluations per second of all special function units."""
        return self.number("exp_per_clock_per_sm") * self.sm_count * self.clock_boost_hz

    def peak_key(self, precision: Precision) -> str:
        """Key of a precision's dense rate. Raises NotAvailable (PRECISION_NOT_AVAILABLE), naming what the GPU has."""
        key = FORMATS[precision].peak
        if key == "fp64_matrix" and key not in self.peaks:
            key = "fp64"
        if key not in self.peaks:
            message = f"{self.name} has no {precision.name.lower()}; it has {', '.join(self.formats())}"
            raise NotAvailable(message, reason="PRECISION_NOT_AVAILABLE", field="workload.precision", gpu=self.name)
        return key

    def peak(self, precision: Precision) -> Peak:
        """The dense peak of a precision. Raises NotAvailable, see peak_key."""
        return self._peak(self.peak_key(precision))

    def all_peaks(self) -> tuple[Peak, ...]:
        """Every dense peak, in the order of the SKU file."""
        return tuple(map(self._peak, self.peaks))

    def _peak(self, key: str) -> Peak:
        figure = self.peaks[key]
        clock = self.clock_hz(key)
        highest = max(clock, self.clock_boost_hz)
        return Peak(self.name, key, float(figure.value), clock, highest, figure.source, figure.mark)

    def formats(self) -> tuple[str, ...]:
        """The precisions the GPU has, with the fp8 form where it is not the OCP one."""
        form = str(self.figures["fp8_format"].value) if "fp8_format" in self.figures else ""
        note = " (FNUZ form, not OCP)" if form.startswith("FNUZ") else ""
        return tuple(key + (note if key == "fp8" else "") for key in self.peaks if key != "fp64_matrix")
