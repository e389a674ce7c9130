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
BANDS_US = (10, 30, 100, 300)  # machines differ by kind of work; long kernels are those that fill the chip
SHARED_MIN = 20
CENSUS_COLUMNS = (*Gemm._fields, "kernel")


def seal(runs: Sequence[Path], into: Path) -> Calibration:
    """Write the calibration of runs' points to `into`/<id> and return it; models and their errors are added by fit.

    The first run describes the calibration; runs on other machines of the SKU add points, and pool those that are
    measured twice. Raises InvalidInput where there are no points, or runs of unlike SKU or stack.
    """
    if not any((run / "run.json").is_file() for run in runs):
        raise InvalidInput(f"{', '.join(map(str, runs))} holds no points to make a calibration of", reason="NO_POINTS")
    about = _joined([json.loads((run / "run.json").read_text()) for run in runs])
    found = [
        {path.stem: read_rows(path) for path in sorted(run.glob("*.csv")) if path.name not in NOT_POINTS}
        for run in runs
    ]
    families = dict.fromkeys(family for one in found for family, rows in one.items() if rows)
    points = {family: pooled([one.get(family, []) for one in found], about["keys"][family]) for family in families}
    if not points:
        raise InvalidInput(f"{', '.join(map(str, runs))} holds no points to make a calibration of", reason="NO_POINTS")
    names = list({(row["family"], row["key"]): row for run in runs for row in read_rows(run / "names.csv")}.values())
    failures = _failed([row for run in runs for row in read_rows(run / "failures.csv")], points, about["keys"])
    with tempfile.TemporaryDirectory(dir=_made(into)) as name:
        draft = Path(name)
        asked = any((run / "choices.npz").exists() for run in runs)
        names = _timed_only(names, points, about["keys"]) if asked else names
        _write_measurements(draft / "measurements", about["keys"], points, names, failures)
        for extra in COPIED:
            source = next((run / extra for run in runs if (run / extra).exists()), None)
            if source:
                shutil.copy(source, draft / "measurements" / extra)
        (draft / "card.json").write_bytes(canonical(card(about, points, failures)))
        return settle(draft, into)


def pooled(runs: Sequence[Sequence[dict[str, str]]], keys: Sequence[str]) -> list[dict[str, str]]:
    """The points of several runs, each once, as a machine between them would have them.

    Two H100s differ by 2.5 % on large GEMMs at one clock. What several machines measured has their mean time, and a spread
    that holds them all; what one measured is moved by half its usual distance from the others, by band of time.
    """
    groups: dict[tuple[str, ...], list[tuple[int, dict[str, str]]]] = {}
    for machine, rows in enumerate(runs):
        for row in rows:
            groups.setdefault((*(row[key] for key in keys), row["state"]), []).append((machine, row))
    shifts = _shifts([group for group in groups.values() if len(group) > 1])
    return [_pool(group) if len(group) > 1 else _moved(*group[0], shifts) for group in groups.values()]


def _pool(group: Sequence[tuple[int, dict[str, str]]]) -> dict[str, str]:
    rows = [row for _, row in group]
    times = [float(row["time_us"]) for row in rows]
    middle = statistics.fmean(times)
    spread = max([(max(times) - min(times)) / middle, *(float(row["spread"] or 0) for row in rows)])
    return {**rows[0], "time_us": f"{middle:.5g}", "spread": f"{spread:.5f}"}


def _band(time_us: float) -> int:
    return sum(time_us >= edge for edge in BANDS_US)


def _shifts(groups: Sequence[Sequence[tuple[int, dict[str, str]]]]) -> dict[tuple[int, int], float]:
    """Median of (mean of all machines / this machine), by machine and time band, where twenty shared points tell it."""
    ratios: dict[tuple[int, int], list[float]] = {}
    for group in groups:
        middle = statistics.fmean(float(row["time_us"]) for _, row in group)
        for machine, row in group:
            ratios.setdefault((machine, _band(middle)), []).append(middle / float(row["time_us"]))
    return {place: statistics.median(found) for place, found in ratios.items() if len(found) >= SHARED_MIN}


def _moved(machine: int, row: dict[str, str], shifts: Mapping[tuple[int, int], float]) -> dict[str, str]:
    time_us = float(row["time_us"])
    shift = shifts.get((machine, _band(time_us)), 1.0)
    return row if shift == 1.0 else {**row, "time_us": f"{time_us * shift:.5g}"}


def _failed(
    rows: Sequence[dict[str, str]], points: Mapping[str, Sequence[Row]], keys: Mapping[str, Sequence[str]]
) -> list[dict[str, str]]:
    """What no run could measure, each once."""
    measured = {
        (family, "/".join(row[key] for key in keys[family]), row["state"])
        for family in points
        for row in points[family]
    }
    once = {(row["family"], row["key"], row["state"]): row for row in rows}
    return [row for key, row in once.items() if key not in measured]


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
    others += [other for about in abouts for other in about.get("others", ())]
    dropped: Counter[str] = Counter()
    for about in abouts:
        dropped.update(about.get("dropped", {}))
    return {
        **first,
        "keys": keys,
        "others": others,
        "dropped": dict(dropped),
        "production": all(about["production"] for about in abouts),
    }


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
        "dropped": about.get("dropped", {}),
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
    write_rows(
        folder / "kernels.csv", ("id", "name"), [{"id": str(number), "name": name} for name, number in ids.items()]
    )
    timed: set[str] = set()
    for family, rows in points.items():
        key, full = keys[family], []
        for row in rows:
            name = _name_key(row, key)
            timed.add(f"{family}/{name}")
            full.append({**row, "kernel": str(ids.get(kernels.get((family, name), ""), 0))})
        full.sort(key=lambda row: _order(row[column] for column in (*key, "state")))
        write_rows(folder / f"{family}.csv", (*rows[0], "kernel"), full)
    census = [
        {**dict(zip(Gemm._fields, key.split("/"), strict=True)), "kernel": str(ids[kernel])}
        for (family, key), kernel in kernels.items()
        if family == "gemm" and f"gemm/{key}" not in timed
    ]
    census.sort(key=lambda row: _order(row[column] for column in Gemm._fields))
    write_rows(folder / "census.csv", CENSUS_COLUMNS, census)
    write_rows(folder / "failures.csv", FAILURE_COLUMNS, sorted(failures, key=lambda row: tuple(row.values())))


def _timed_only(
    names: Sequence[dict[str, str]], points: Mapping[str, Sequence[Row]], keys: Mapping[str, Sequence[str]]
) -> list[dict[str, str]]:
    """A library that was asked for its choices directly needs no census: names of what was timed are enough."""
    timed = {(family, _name_key(row, keys[family])) for family, rows in points.items() for row in rows}
    return [row for row in names if (row["family"], row["key"]) in timed]


def _name_key(row: Row, key: Sequence[str]) -> str:
    return "/".join(row[column] for column in key if column not in UNNAMED_KEYS)


def _order(values: Iterable[str]) -> tuple[tuple[float, str], ...]:
    """Numbers by size, words by letter."""
    return tuple((float(value), "") if value.lstrip("-").isdigit() else (-1.0, value) for value in values)


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream) if None not in row.values()]  # a torn last line is no row


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
