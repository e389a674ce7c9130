"""Whether a calibration may answer: hash, schema, physics, noise, card. A pure function of its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.hwdb.calibration import Calibration, Measurements
from tilewise.hwdb.errors import NotAvailable, TilewiseError
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.trial import tried

FILES = re.compile(r"card\.json|measurements/([a-z0-9_]+\.csv|choices\.npz)|models/[a-z0-9_]+\.(json|npz)")
CARD = ("schema", "id", "date", "sku", "production", "content_sha256", "script", "stack", "gpu", "families", "held_out")
PUBLISHED_CARD = ("schema", "id", "date", "sku", "production", "content_sha256", "sources", "families", "held_out")
STACK = ("python", "torch")
GPU = ("name", "driver", "power_limit_w", "sms", "memory_bytes")
RESULT_COLUMNS = ("state", "time_us", "spread", "clock_mhz", "kernel")
BYTES_MAX = 64 * 2**20
NOISE_MEDIAN_MAX = 0.01
NOISE_P90_MAX = 0.05
COLLECTIVE_NOISE_MAX = 0.5  # of a collective's time, by which its windows may differ: the host's noise is in them
DISCARDED_SHARE_MAX = 0.5
GEMM_POINTS_MIN = 300
PEAK_SLACK = 1.02  # clocks are measured to half a per cent, times to 0.3 %
GEMM_PEAKS = {"fp8row": "fp8"}  # dtype -> peak key of the SKU file, where the two differ


class Finding(Record):
    """One thing that a check found. error: it forbids publishing. row counts from 1; 0: not about one row."""

    code: str
    message: str
    error: bool = True
    path: str = ""
    row: int = 0


def check(calibration: Calibration, sku: Sku) -> list[Finding]:
    """Everything that is wrong with a calibration, errors first; it may be published when none is an error."""
    try:
        found = list(_card(calibration, sku))
        if not any(finding.code == "CARD_INCOMPLETE" for finding in found):
            for family in calibration.families():
                found += _family(calibration, family, sku)
            found += _answers(calibration, sku)
    except Exception as error:  # noqa: BLE001 - whatever it is, the files are at fault
        found = [Finding("BAD_SCHEMA", f"cannot be read: {_why(error)}")]
    return sorted(found, key=lambda finding: not finding.error)


def publishable(findings: list[Finding]) -> bool:
    return not any(finding.error for finding in findings)


def _why(error: Exception) -> str:
    """In a line that names no folder of the server's."""
    if isinstance(error, OSError):
        return f"{Path(str(error.filename)).name}: {(error.strerror or 'not readable').lower()}"
    return error.message if isinstance(error, TilewiseError) else f"{type(error).__name__}: {error}"


def _answers(calibration: Calibration, sku: Sku) -> Iterator[Finding]:
    try:
        tried(calibration, sku)
    except NotAvailable as error:
        yield Finding("CANNOT_ANSWER", error.message)


def _missing(card: Mapping[str, Any]) -> list[str]:
    """What the card lacks: of a calibration that others' measurements made, its sources instead of the GPU and its stack."""
    if card.get("trust") == "published":
        return [key for key in PUBLISHED_CARD if key not in card]
    missing = [key for key in CARD if key not in card]
    missing += [f"stack.{key}" for key in STACK if not card.get("stack", {}).get(key)]
    return missing + [f"gpu.{key}" for key in GPU if not card.get("gpu", {}).get(key)]


def _card(calibration: Calibration, sku: Sku) -> Iterator[Finding]:
    card = calibration.card
    missing = _missing(card)
    if missing:
        yield Finding("CARD_INCOMPLETE", f"the card lacks {', '.join(missing)}", path="card.json")
        return
    sha256 = calibration.content_sha256()
    if card["content_sha256"] != sha256 or card["id"] != f"{card['date']}-{sha256[:8]}":
        yield Finding(
            "BAD_HASH", f"the files hash to {sha256[:8]}..., but the card says {card['content_sha256'][:8]}..."
        )
    if card["sku"] != sku.name:
        yield Finding("WRONG_SKU", f"taken on {card['sku']}, not on {sku.name}", path="card.json")
    if not calibration.production:
        yield Finding(
            "NOT_PRODUCTION", "taken on a card, or in a state, that the guard refuses; it can never be published"
        )
    for name in calibration.files():
        if not FILES.fullmatch(name):
            yield Finding("BAD_SCHEMA", f"{name} is no file of a calibration", path=name)
    size = sum((calibration.folder / name).stat().st_size for name in calibration.files())
    if size > BYTES_MAX:
        yield Finding("TOO_LARGE", f"{size / 2**20:.0f} MiB in all; at most {BYTES_MAX / 2**20:.0f} MiB")
    if not card["held_out"]:
        yield Finding("NO_HELD_OUT_ERROR", "no model was judged on held-out points", error=False, path="card.json")


def _family(calibration: Calibration, family: str, sku: Sku) -> Iterator[Finding]:
    path = f"measurements/{family}.csv"
    columns = calibration.measurements(family)
    missing = [name for name in (*calibration.key_columns(family), *RESULT_COLUMNS) if name not in columns]
    if missing:
        yield Finding("BAD_SCHEMA", f"{family} lacks the columns {', '.join(missing)}", path=path)
        return
    time_us = columns["time_us"].astype(float)
    wrong = np.flatnonzero(~(np.isfinite(time_us) & (time_us > 0)))
    if wrong.size:
        yield Finding("BAD_TIME", f"{wrong.size} rows without a positive time", path=path, row=int(wrong[0]) + 1)
        return
    yield from _once(calibration, family, columns, path)
    yield from _noise(calibration, family, columns, path)
    if family == "gemm":
        yield from _gemm_physics(columns, sku, path)
    if family == "collectives":
        yield from _collective_noise(columns, path)


def _once(calibration: Calibration, family: str, columns: Measurements, path: str) -> Iterator[Finding]:
    names = (*calibration.key_columns(family), "state")
    rows = list(zip(*(columns[name].astype(str) for name in names), strict=True))
    if len(set(rows)) < len(rows):
        yield Finding("DUPLICATE_POINT", f"{len(rows) - len(set(rows))} points of {family} are there twice", path=path)
    if family == "gemm" and len(rows) < GEMM_POINTS_MIN:
        yield Finding("TOO_FEW_POINTS", f"{len(rows)} GEMM points; at least {GEMM_POINTS_MIN} are needed", path=path)


def _noise(calibration: Calibration, family: str, columns: Measurements, path: str) -> Iterator[Finding]:
    summary = calibration.card["families"][family]
    spread = columns["spread"].astype(float)[columns["state"] == "burst"]
    spread = spread[np.isfinite(spread)]
    if spread.size and summary["windows"]:  # launches, transfers and collectives have none: the host's noise is theirs
        middle, high = float(np.median(spread)), float(np.quantile(spread, 0.9))
        if middle > NOISE_MEDIAN_MAX or high > NOISE_P90_MAX:
            allowed = f"allowed are {NOISE_MEDIAN_MAX:.1%} and {NOISE_P90_MAX:.0%}"
            yield Finding(
                "TOO_NOISY", f"{family} spreads by {middle:.1%} (median), {high:.1%} (p90); {allowed}", path=path
            )
    windows = max(1, summary["windows"] + summary["discarded_windows"])
    if summary["discarded_windows"] > DISCARDED_SHARE_MAX * windows:
        share = summary["discarded_windows"] / windows
        yield Finding(
            "UNSTEADY_CLOCK", f"{share:.0%} of the windows of {family} were thrown away", error=False, path=path
        )


def _collective_noise(columns: Measurements, path: str) -> Iterator[Finding]:
    spread = columns["spread"].astype(float)
    noisy = np.flatnonzero(spread > COLLECTIVE_NOISE_MAX)
    if noisy.size:
        message = (
            f"{noisy.size} collectives whose windows differ by up to {spread[noisy].max():.0%}; at most "
            f"{COLLECTIVE_NOISE_MAX:.0%} is allowed: measure them again, or leave them out"
        )
        yield Finding("TOO_NOISY", message, path=path, row=int(noisy[0]) + 1)


def _gemm_physics(columns: Measurements, sku: Sku, path: str) -> Iterator[Finding]:
    """No GEMM above the peak at the clock it ran at, nor above the peak at the highest clock where that is unknown."""
    flops_per_s = 2.0 * columns["m"] * columns["n"] * columns["k"] / (columns["time_us"] * 1e-6)
    clock_hz = columns["clock_mhz"].astype(float) * 1e6
    for dtype in sorted(set(columns["dtype"])):
        key = GEMM_PEAKS.get(dtype, dtype)
        rows = columns["dtype"] == dtype
        if key not in sku.peaks:
            yield Finding("BAD_SCHEMA", f"{sku.name} has no {dtype}", path=path, row=int(np.flatnonzero(rows)[0]) + 1)
            continue
        clock = np.where(np.isfinite(clock_hz), clock_hz, sku.clock_boost_hz)
        limit = float(sku.peaks[key].value) * np.maximum(1.0, clock / sku.clock_hz(key)) * PEAK_SLACK
        above = np.flatnonzero(rows & (flops_per_s > limit))
        if above.size:
            share = flops_per_s[above[0]] / limit[above[0]] * PEAK_SLACK
            message = f"{above.size} {dtype} points above the peak, the first at {share:.0%} of it"
            yield Finding("ABOVE_PEAK", message, path=path, row=int(above[0]) + 1)
