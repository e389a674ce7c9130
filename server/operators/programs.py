"""How far a family's sequence of operators can be relied on: whether it was set beside what transformers' own code launches.

programs.csv, which scripts/research/compare_families.py writes, has a line for every family and phase: launches, FLOPs, bytes and a
time by one yardstick for both sides, or the reason why there is nothing to compare. A program that was never compared may be as
far off as others would be if nothing were known of how they write their blocks (column `plain`: our time over the traced one without
the family's variant); one that is known to differ may be off by what was found.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache

import numpy as np

from tilewise.hwdb import packaged
from tilewise.hwdb.record import Record
from tilewise.server.architecture.model import Architecture
from tilewise.server.workload import Workload

CSV = "programs.csv"
# Beyond these a program differs; what is less stays within the intervals of its kernels
LAUNCHES, FLOPS, TIME = 0.1, 0.01, 0.05
QUANTILES = (0.05, 0.95)  # of 90 % intervals
Factors = tuple[float, float]


class Program(Record):
    """time, launches: the least and the most that the true program takes, over the one predicted; why: "" where they agree."""

    time: Factors = (1.0, 1.0)
    launches: Factors = (1.0, 1.0)
    why: str = ""


AGREES = Program()


def program_of(arch: Architecture, workload: Workload) -> Program:
    """What is known about the program behind an answer: transformers' by its traces, others' by server/stacks.toml."""
    if workload.stack != "transformers":
        factors = 1 / workload.program.factor, workload.program.factor
        return Program(factors, factors)
    phase = workload.phase
    line = lines()[arch.family, phase]
    towers = len(arch.stacks) > 1 and phase != "decode"  # decode runs the text model alone
    if line["reason"] or towers:
        return _never_compared(phase, line["reason"] or "its towers are not traced")
    return program_at(line)


def _never_compared(phase: str, reason: str) -> Program:
    least, most = plain_factors(phase)
    why = f"never compared with transformers' own code ({reason}): the true program may take {least:.2f} to {most:.2f} times as long"
    return Program((least, most), (least, most), why)


def program_at(line: Mapping[str, str]) -> Program:
    """What a line of a program that was compared says of it."""
    time, launches, flops = (ratio(line, name) for name in ("time_us", "kernels", "flops"))
    if abs(time - 1) <= TIME and abs(launches - 1) <= LAUNCHES and abs(flops - 1) <= FLOPS:
        return AGREES
    why = (
        f"transformers' own code of {line['family']} differs from this program: {launches:.2f} times the launches, {flops:.2f} times the "
        f"FLOPs, {time:.2f} times the time"
    )
    return Program((min(time, 1.0), max(time, 1.0)), (min(launches, 1.0), max(launches, 1.0)), why)


def ratio(line: Mapping[str, str], quantity: str) -> float:
    """What was traced over what we count."""
    return float(line[f"{quantity}_traced"]) / float(line[f"{quantity}_ours"])


@cache
def plain_factors(phase: str, without: str = "") -> Factors:
    """QUANTILES of traced over predicted time of families read without their variants; `without` one of them."""
    seen = [line for line in lines().values() if line["phase"] == phase and line["plain"] and line["family"] != without]
    least, most = np.quantile([1 / float(line["plain"]) for line in seen], QUANTILES)
    return min(float(least), 1.0), max(float(most), 1.0)


@cache
def lines() -> dict[tuple[str, str], dict[str, str]]:
    """The lines of programs.csv by family and phase."""
    text = packaged.text("tilewise.server.operators", CSV)
    table = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {(line["family"], line["phase"]): line for line in table}
