"""Low-level counters of thirty kernels: what the clock on the wall cannot say. Runs ncu or rocprofv3 over a worker.

The profilers replay every kernel many times, so this is no part of the timed run. Where the tool is missing, or may not
read counters, that is said in one line and nothing else is lost.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilewise.calibration.benchmarks import benchmark
from tilewise.calibration.gemm_plan import DTYPES, Gemm, case_of
from tilewise.calibration.points import compact
from tilewise.calibration.protocol import Case, Level, Target
from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.kernels.names import short
from tilewise.hwdb.times import State

TOOLS = {"nvidia": "ncu", "amd": "rocprofv3"}
WANTED_S = 2.5e-4
MARK = "bitwise_not"  # the kernel that stands between two works; Device.kernels uses the same
Row = dict[str, str]


def table() -> dict[str, Any]:
    return tomllib.loads(files("tilewise.calibration").joinpath("counters.toml").read_text())


def works(target: Target) -> list[Case]:
    """The kernels to look at on this GPU."""
    offered = [Gemm(*entry) for entry in table()["gemms"]]
    found = [case_of(gemm, target) for gemm in offered if DTYPES[gemm.dtype].peak in target.peaks]
    for entry in table()["points"]:
        case = _nearest(entry["family"], entry["where"], target)
        if case is not None:
            found.append(case)
    return found


def collect(target: Target, output: Path) -> Path:
    """Run the profiler over the worker; returns the table written: one row a kernel, one column a counter.

    Raises NotAvailable (NO_PROFILER, NO_COUNTERS) where there is no tool, no list of counters, or no right to read them.
    """
    metrics = table()["metrics"].get(target.arch)
    tool = TOOLS.get(target.vendor, "")
    if metrics is None:
        raise NotAvailable(f"no list of counters for {target.arch} yet; skipped", reason="NO_COUNTERS")
    if not tool or shutil.which(tool) is None:
        raise NotAvailable(f"{tool or 'a profiler'} is not installed here; counters are skipped", reason="NO_PROFILER")
    output.mkdir(parents=True, exist_ok=True)
    todo = works(target)
    (output / "counters-works.json").write_text(json.dumps([_as_json(case) for case in todo]))
    arguments = _ncu(metrics) if tool == "ncu" else _rocprof(metrics, output)
    # the command line itself, however it was started, is the program to be profiled
    worker = [sys.executable, sys.argv[0], "calibrate", "counted", str(output / "counters-works.json")]
    done = subprocess.run([tool, *arguments, *worker], check=False, capture_output=True, text=True)
    text = done.stdout if tool == "ncu" else _first(output.rglob("*counter_collection.csv"))
    launches = ncu_rows(text, metrics) if tool == "ncu" else rocprof_rows(text, metrics)
    if not launches:
        reason = next(
            (line for line in (done.stdout + done.stderr).splitlines() if "ERR" in line), f"exit {done.returncode}"
        )
        raise NotAvailable(f"{tool} read no counters: {reason.strip()}", reason="NO_COUNTERS")
    return write(output / "counters.csv", todo, split(launches), list(metrics))


def ncu_rows(text: str, metrics: Mapping[str, str]) -> list[Row]:
    """Kernel launches in ncu's `--csv --page raw` output: name and counters under our names."""
    lines = text.splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        return []
    found = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
        if row["ID"]:  # the row under the head holds units
            values = {ours: (row.get(theirs) or "").replace(",", "") for ours, theirs in metrics.items()}
            found.append({"kernel": row["Kernel Name"], **values})
    return found


def rocprof_rows(text: str, metrics: Mapping[str, str]) -> list[Row]:
    """Kernel launches in rocprofv3's counter_collection.csv: one line a launch and counter."""
    ours = {theirs: name for name, theirs in metrics.items()}
    launches: dict[str, Row] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row.get("Counter_Name") in ours:
            launch = launches.setdefault(row["Dispatch_Id"], {"kernel": row["Kernel_Name"]})
            launch[ours[row["Counter_Name"]]] = row["Counter_Value"]
    return [launches[number] for number in sorted(launches, key=int)]


def split(launches: Iterable[Row]) -> list[list[Row]]:
    """Launches by work: a marker kernel comes before each."""
    groups: list[list[Row]] = []
    for launch in launches:
        if MARK in launch["kernel"]:
            groups.append([])
        elif groups:
            groups[-1].append(launch)
    return groups


def write(path: Path, todo: Sequence[Case], groups: Sequence[Sequence[Row]], counters: Sequence[str]) -> Path:
    """One row a kernel launch, in the order of the works."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["family", "key", "kernel", *counters], restval="", lineterminator="\n")
        writer.writeheader()
        for case, group in zip(todo, groups, strict=False):
            key = "/".join(map(str, case.key.values()))
            for launch in group:
                values = {name: _number(launch.get(name, "")) for name in counters}
                writer.writerow({"family": case.family, "key": key, "kernel": short(launch["kernel"]), **values})
    return path


def _ncu(metrics: Mapping[str, str]) -> list[str]:
    # clocks are left alone, as in the timed run; ncu's default would lock them to base
    return ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--profile-from-start", "off", "--metrics", ",".join(metrics.values())]  # fmt: skip


def _rocprof(metrics: Mapping[str, str], output: Path) -> list[str]:
    return ["--pmc", *metrics.values(), "--output-format", "csv", "-d", str(output), "--"]


def _nearest(family: str, where: Mapping[str, object], target: Target) -> Case | None:
    found = benchmark(family)
    cases = found.cases(target, Level.FULL) if found else []
    fits = [
        c for c in cases if c.state is State.BURST and all(c.key.get(name) == value for name, value in where.items())
    ]
    return min(fits, key=lambda case: abs(case.estimate_s - WANTED_S), default=None)


def _as_json(case: Case) -> dict[str, Any]:
    return {"family": case.family, "key": dict(case.key), "bytes": case.bytes, "estimate_s": case.estimate_s}


def _number(text: str) -> str:
    try:
        return compact(float(text))
    except ValueError:
        return ""


def _first(paths: Iterable[Path]) -> str:
    newest = max(paths, key=os.path.getmtime, default=None)
    return newest.read_text() if newest else ""
