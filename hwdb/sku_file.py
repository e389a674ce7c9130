"""Reads one SKU file and refuses what cannot be true.

A figure is [value, source key]; [sources] holds each source's text once, ending in its mark: "NVIDIA H100 datasheet [K]".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

from tilewise.hwdb.errors import InvalidInput, unknown
from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.sku import Ceiling, Figure, Names, Sku
from tilewise.hwdb.sku_keys import CEILINGS, RANGES, RATES, REQUIRED, SECTIONS, TEXTS
from tilewise.hwdb.times import Trust

MARK = re.compile(r"\[([KSDRM3])\]$")
GENERATIONS = tuple(assumptions()["tile"])
TOLERANCE = 0.03  # of peak = SMs x clock x FLOP per clock and SM
T = TypeVar("T")


def read(text: str, name: str) -> Sku:
    """The SKU in a file's text; `name` is the file's name without ending, which must be the name inside.

    Raises InvalidInput (BAD_SKU_FILE) naming the file, the key and what is allowed.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        refuse(name, "file", f"is not TOML: {error}")
    reader = Reader(name, data)
    if data.get("name") != name:
        refuse(name, "name", f"is {data.get('name')!r}; it must be the file's own name")
    sku = reader.sku()
    prove(sku)
    return sku


def refuse(name: str, key: str, problem: str) -> NoReturn:
    raise InvalidInput(f"skus/{name}.toml: {key} {problem}", reason="BAD_SKU_FILE", field=key, sku=name)


class Reader:
    """Turns the tables of one file into figures, checking keys, sources, marks and ranges."""

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name = name
        self.data = data
        self.sources: Mapping[str, str] = data.get("sources", {})
        self.known("section", data, SECTIONS)

    def sku(self) -> Sku:
        names = self.data["names"]
        return Sku(
            name=self.name,
            title=self.data["title"],
            vendor=self.data["vendor"],
            generation=self.generation(self.data["generation"]),
            names=Names(tuple(names["aliases"]), tuple(names["families"]), names.get("note", "")),
            notes=tuple(self.data.get("notes", ())),
            figures=self.section("figures", {*RANGES, *TEXTS}, self.figure, REQUIRED),
            peaks=self.section("peak_flops_per_s", RATES, self.figure, {"bf16"}),
            flops_per_clock=self.section("flops_per_clock_per_sm", RATES, self.figure),
            unproven=self.section("unproven", RATES, lambda key, reason: str(reason)),
            ceilings=self.section("ceilings", CEILINGS, self.ceiling),
        )

    def generation(self, name: str) -> str:
        """One for which the roofline has tiles and fractions."""
        if name not in GENERATIONS:
            refuse(self.name, "generation", unknown("", name, GENERATIONS).lstrip())
        return name

    def section(
        self,
        title: str,
        known: Collection[str],
        read_one: Callable[[str, Any], T],
        required: Collection[str] = (),
    ) -> dict[str, T]:
        entries = self.data.get(title, {})
        self.known(title, entries, known)
        if missing := sorted(set(required) - entries.keys()):
            refuse(self.name, title, f"lacks {', '.join(missing)}")
        return {key: read_one(key, entry) for key, entry in entries.items()}

    def known(self, title: str, entries: Mapping[str, Any], known: Collection[str]) -> None:
        if unknown := sorted(entries.keys() - set(known)):
            refuse(self.name, title, f"holds unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}")

    def figure(self, key: str, entry: Any) -> Figure:
        if not isinstance(entry, list) or len(entry) != 2:
            refuse(self.name, key, "must be [value, source]")
        value, source = entry
        if key not in TEXTS:
            self.in_range(key, value)
        return Figure(value, *self.source(key, source))

    def ceiling(self, key: str, entry: Any) -> Ceiling:
        if not isinstance(entry, list) or len(entry) != 3 or entry[2] not in ("published", "measured"):
            refuse(self.name, key, 'must be [value, source, "published" or "measured"]')
        value, source, trust = entry
        self.in_range(key, value)
        return Ceiling(float(value), *self.source(key, source), Trust[trust.upper()])

    def source(self, key: str, source: str) -> tuple[str, str]:
        text = self.sources.get(source)
        if not text:
            refuse(self.name, key, f"has no source: [sources] holds no {source!r}")
        mark = MARK.search(text)
        if mark is None:
            refuse(self.name, key, f"has a source without a mark: {text!r} must end in [K], [S], [D], [R], [M] or [3]")
        return text[: mark.start()].rstrip(), mark[1]

    def in_range(self, key: str, value: Any) -> None:
        low, high = RANGES.get(key, (0.0, 1e18))
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse(self.name, key, f"must be a number, not {value!r}")
        if not low <= value <= high or value <= 0:
            refuse(self.name, key, f"is {value:g}, outside {low:g} to {high:g}")


def prove(sku: Sku) -> None:
    """Every peak is SMs x clock x FLOP per clock and SM, or says why not; no ceiling lies above what it is a part of."""
    for key in sku.peaks:
        _prove_peak(sku, key)
    for key, ceiling in sku.ceilings.items():
        whole = _whole(sku, key)
        if whole is not None and not 0 < ceiling.value <= whole:
            refuse(sku.name, key, f"gives an efficiency of {ceiling.value / whole:.3f}, outside (0, 1]")


def _prove_peak(sku: Sku, key: str) -> None:
    if key not in sku.flops_per_clock:
        if key not in sku.unproven:
            refuse(sku.name, key, "has no FLOP per clock and SM to prove it by, and no reason in [unproven]")
        return
    product = sku.sm_count * sku.clock_hz(key) * float(sku.flops_per_clock[key].value)
    ratio = float(sku.peaks[key].value) / product
    if abs(ratio - 1) <= TOLERANCE:
        return
    if 1.9 < ratio < 2.1:
        refuse(
            sku.name,
            key,
            f"is {ratio:.2f} times SMs x clock x FLOP per clock: a sparse rate; only dense ones exist here",
        )
    if key not in sku.unproven:
        refuse(sku.name, key, f"is {ratio:.3f} times SMs x clock x FLOP per clock, without a reason in [unproven]")


def _whole(sku: Sku, ceiling: str) -> float | None:
    """What a ceiling is a fraction of: a dense peak, the datasheet bandwidth, the links."""
    if ceiling.startswith("gemm_"):
        key = ceiling.removeprefix("gemm_").removesuffix("_flops_per_s").removesuffix("_sustained")
        return float(sku.peaks[key].value) if key in sku.peaks else 0.0
    return sku.hbm_bytes_per_s if ceiling == "hbm_bytes_per_s" else None
