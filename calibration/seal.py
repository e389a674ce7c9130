"""From the points of a run to a calibration: sorted files, kernel names as ids, and the card."""

from __future__ import annotations

import csv
import json
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.calibration import protocol
from tilewise.calibration.gemm_plan import Gemm
from tilewise.calibration.naming import UNNAMED_KEYS
from tilewise.calibration.run import FAILURE_COLUMNS
from tilewise.hwdb.calibration import SCHEMA, Calibration, canonical, identify
from tilewise.hwdb.errors import InvalidInput

Row = Mapping[str, str]
NOT_POINTS = ("names.csv", "failures.csv", "counters.csv")
COPIED = ("choices.npz", "counters.csv")
CENSUS_COLUMNS = (*Gemm._fields, "kernel")


def seal(runs: Sequence[Path], into: Path) -> Calibration:
    """Write the calibration of runs' points to `into`/<id> and return it; models and their errors are added by fit.

    The first run describes the calibration; others (collectives, say, from a machine with more GPUs) bring the families
    that it lacks. Raises InvalidInput where there are no points, or runs of unlike SKU or stack.
    """
    points: dict[str, list[dict[str, str]]] = {}
    names, failures = [], []
    for run in runs:
        found = {path.stem: _read(path) for path in sorted(run.glob("*.csv")) if path.name not in NOT_POINTS}
        fresh = {family: rows for family, rows in found.items() if rows and family not in points}
        names += [row for row in _read(run / "names.csv") if row["family"] in fresh]
        failures += [row for row in _read(run / "failures.csv") if row["family"] in fresh]
        points |= fresh
    if not points:
        raise InvalidInput(f"{', '.join(map(str, runs))} holds no points to make a calibration of", reason="NO_POINTS")
    about = _joined([json.loads((run / "run.json").read_text()) for run in runs])
    with tempfile.TemporaryDirectory(dir=_made(into)) as name:
        draft = Path(name)
        _write_measurements(draft / "measurements", about["keys"], points, names, failures)
        for extra in COPIED:
            if (runs[0] / extra).exists():
                shutil.copy(runs[0] / extra, draft / "measurements" / extra)
        (draft / "card.json").write_bytes(canonical(card(about, points, failures)))
        return settle(draft, into)


def _joined(abouts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first run's description with the keys of all; `others` tells where the rest was measured."""
    first = abouts[0]
    for about in abouts[1:]:
        for key in ("sku", "stack"):
            if about[key] != first[key]:
                message = f"runs of unlike {key} make no calibration: {first[key]} and {about[key]}"
                raise InvalidInput(message, reason="OTHER_RUN", field=key)
    keys = {family: key for about in reversed(abouts) for family, key in about["keys"].items()}
    others = [{key: about[key] for key in ("gpu", "ranks", "started", "used_s")} for about in abouts[1:]]
    return {**first, "keys": keys, "others": others, "production": all(about["production"] for about in abouts)}


def settle(draft: Path, into: Path) -> Calibration:
    """Give a finished draft its id and its place; the same content twice is one calibration."""
    calibration = identify(draft)
    place = into / calibration.id
    if not place.exists():
        shutil.copytree(draft, place)
    return Calibration.open(place)


def card(about: Mapping[str, Any], points: Mapping[str, Sequence[Row]], failures: Sequence[Row]) -> dict[str, Any]:
    """What a reader must know before trusting the numbers."""
    taken_over = (
        "sku",
        "production",
        "script",
        "stack",
        "gpu",
        "budget_s",
        "used_s",
        "ranks",
        "started",
        "wanted_clock_hz",
    )
    return {
        "schema": SCHEMA,
        "date": about["started"][:10],
        **{key: about[key] for key in taken_over},
        "protocol": {
            "window_s": protocol.WINDOW_S,
            "warm_s": protocol.WARM_S,
            "rotation_bytes": protocol.ROTATION_BYTES,
            "sets_max": protocol.SETS_MAX,
            "sustained_s": protocol.SUSTAINED_S,
            "sustained_last_s": protocol.SUSTAINED_LAST_S,
        },
        "families": {
            family: {"key": about["keys"][family], **_summary(rows, family, failures)}
            for family, rows in points.items()
        },
        "others": about["others"],
        "failures": dict(Counter(f"{row['family']}: {row['reason']}" for row in failures).most_common(20)),
        "models": {},
        "held_out": [],
    }


def _summary(rows: Sequence[Row], family: str, failures: Sequence[Row]) -> dict[str, Any]:
    burst = [row for row in rows if row["state"] == "burst"]
    spreads = [float(row["spread"]) for row in burst if row["spread"]]
    clocks = [float(row["clock_mhz"]) for row in burst if row["clock_mhz"]]
    return {
        "burst_points": len(burst),
        "sustained_points": len(rows) - len(burst),
        "failed_points": sum(row["family"] == family for row in failures),
        "windows": sum(int(row["windows"] or 0) for row in burst),
        "discarded_windows": sum(int(row["discarded"] or 0) for row in burst),
        "spread": _quantiles(spreads),
        "clock_mhz": _quantiles(clocks),
    }


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return {name: float(f"{cuts[at]:.5g}") for name, at in (("p5", 0), ("median", 9), ("p90", 17), ("p95", 18))}


def _write_measurements(
    folder: Path,
    keys: Mapping[str, Sequence[str]],
    points: Mapping[str, Sequence[Row]],
    names: Sequence[Row],
    failures: Sequence[Row],
) -> None:
    folder.mkdir()
    kernels = {(row["family"], row["key"]): row["kernel"] for row in names}
    ids = {name: number for number, name in enumerate(sorted(set(kernels.values())), start=1)}
    _write(folder / "kernels.csv", ("id", "name"), [{"id": str(number), "name": name} for name, number in ids.items()])
    timed: set[str] = set()
    for family, rows in points.items():
        key, full = keys[family], []
        for row in rows:
            name = _name_key(row, key)
            timed.add(f"{family}/{name}")
            full.append({**row, "kernel": str(ids.get(kernels.get((family, name), ""), 0))})
        full.sort(key=lambda row: _order(row[column] for column in (*key, "state")))
        _write(folder / f"{family}.csv", (*rows[0], "kernel"), full)
    census = [
        {**dict(zip(Gemm._fields, key.split("/"), strict=True)), "kernel": str(ids[kernel])}
        for (family, key), kernel in kernels.items()
        if family == "gemm" and f"gemm/{key}" not in timed
    ]
    census.sort(key=lambda row: _order(row[column] for column in Gemm._fields))
    _write(folder / "census.csv", CENSUS_COLUMNS, census)
    _write(folder / "failures.csv", FAILURE_COLUMNS, sorted(failures, key=lambda row: tuple(row.values())))


def _name_key(row: Row, key: Sequence[str]) -> str:
    return "/".join(row[column] for column in key if column not in UNNAMED_KEYS)


def _order(values: Iterable[str]) -> tuple[tuple[float, str], ...]:
    """Numbers by size, words by letter."""
    return tuple((float(value), "") if value.lstrip("-").isdigit() else (-1.0, value) for value in values)


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream) if None not in row.values()]  # a torn last line is no row


def _write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
