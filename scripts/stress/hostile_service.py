"""Honest callers beside a hostile one: what they wait for an answer, alone and attacked, and what the server holds.

python scripts/stress/hostile_service.py [PATTERN ...] [--rounds 3] [--seconds 6] [--minutes 60]

The hostile one has a reader's token of its own (or none) and does one thing over and over (hostile_patterns.py). Four honest callers ask
every twentieth of a second: six times of ten what was asked before, three times something new, else for lists, a small batch or sweep.
--minutes: one pattern after another for so long, and what was seen over the whole time; long calls of the honest are told apart. Windows alone and attacked take turns, so that others who use
the machine slow down both; the load of the machine is shown beside.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
from bench_service import METHOD, question, serving, unseen
from fuzz_service import memory_mib
from hostile_patterns import BATCH, PATTERNS, SWEEP, channel, signed

from tilewise.server.service.identity.callers import digest
from tilewise.v1.advice_pb2 import Axis, Range, SweepRequest
from tilewise.v1.advisor_service_pb2 import BatchPredictRequest, PredictRequest

CLIENTS, PAUSE_S = 4, 0.02
MIX = (60, 30, 5, 3, 2)  # known, new, a list, a batch of twenty, a sweep over a hundred sizes
SETTLE_S = 2.0  # until an attack is under way
ATTACK = Path(__file__).with_name("hostile_patterns.py")


class Heard(NamedTuple):
    """Milliseconds of each answer, of short calls and of long ones, and the statuses."""

    short: list[float]
    long: list[float]
    codes: Counter[str]


def questions(some: random.Random) -> tuple[str, bytes]:
    """Method and message of an honest caller's next call."""
    kind = some.choices(range(len(MIX)), MIX)[0]
    if kind == 2:
        return "/tilewise.v1.HardwareService/ListGpus", b""
    if kind == 3:
        requests = [PredictRequest.FromString(question(**unseen())) for _ in range(20)]
        return BATCH, BatchPredictRequest(requests=requests).SerializeToString()
    if kind == 4:
        base = PredictRequest.FromString(question())
        axes = [Axis(field="vocab_size", range=Range(first=64_000, last=64_000 + 64 * 99, step=64))]
        asked = SweepRequest(model=base.model, workload=base.workload, gpus=[base.gpu], axes=axes)
        return SWEEP, asked.SerializeToString()
    return METHOD, question(**(unseen() if kind else {"num_hidden_layers": some.randrange(20, 40)}))


def honest(port: int, seconds: float) -> Heard:
    heard = Heard([], [], Counter())
    end = time.monotonic() + seconds

    def one() -> None:
        some = random.Random()
        with channel(port) as own:
            while time.monotonic() < end:
                path, asked = questions(some)
                begin = time.monotonic()
                try:
                    for _ in own.unary_stream(path)(asked, timeout=30, metadata=signed("honest")):
                        pass
                    (heard.long if path in (BATCH, SWEEP) else heard.short).append(1e3 * (time.monotonic() - begin))
                    heard.codes["OK"] += 1
                except grpc.RpcError as error:
                    heard.codes[error.code().name] += 1
                time.sleep(PAUSE_S)

    threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard


def attacked(port: int, pattern: str, seconds: float) -> Heard:
    hostile = subprocess.Popen(
        ["nice", "-n", "5", sys.executable, str(ATTACK), str(port), pattern], stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(SETTLE_S)
        assert hostile.poll() is None, f"{pattern} ended by itself"
        return honest(port, seconds)
    finally:
        hostile.kill()
        hostile.wait()


def row(name: str, heard: list[Heard], alone: list[Heard], memory: float) -> str:
    p50, p99 = np.percentile(short(heard), (50, 99))
    times = p99 / np.percentile(short(alone), 99)
    told = ", ".join(
        f"{code} {count:,}" for code, count in sum((each.codes for each in heard), Counter()).most_common()
    )
    load = os.getloadavg()[0]
    return f"| {name} | {p50:.1f} ms | {p99:.1f} ms | {times:.1f} | {told} | {memory:.0f} MiB | {load:.0f} |"


def short(heard: list[Heard]) -> list[float]:
    return [took for window in heard for took in window.short] or [float("nan")]


def long(heard: list[Heard]) -> list[float]:
    return [took for window in heard for took in window.long] or [float("nan")]


def table(port: int, process: int, patterns: Sequence[str], rounds: int, seconds: float) -> None:
    print("| beside | p50 | p99 | times alone | statuses | memory | load |\n|---|--:|--:|--:|---|--:|--:|")
    for pattern in patterns:
        alone, beside = [], []
        for _ in range(rounds):
            alone.append(honest(port, seconds))
            beside.append(attacked(port, pattern, seconds))
        print(row("nobody", alone, alone, memory_mib(process)))
        print(row(pattern, beside, alone, memory_mib(process)), flush=True)


def hours(port: int, process: int, patterns: Sequence[str], minutes: float, seconds: float) -> None:
    """One pattern after another, over and over."""
    begin, alone, beside = time.monotonic(), [], []
    by_pattern: dict[str, tuple[list[Heard], list[Heard]]] = {pattern: ([], []) for pattern in patterns}
    loads: list[float] = []
    print("| minute | memory | load |\n|--:|--:|--:|")
    for pattern in cycle(patterns):
        minute = (time.monotonic() - begin) / 60
        if pattern == patterns[0] or minute > minutes:
            print(f"| {minute:.1f} | {memory_mib(process):.0f} MiB | {os.getloadavg()[0]:.0f} |", flush=True)
        if minute > minutes:
            break
        alone.append(honest(port, seconds))
        beside.append(attacked(port, pattern, 2 * seconds))
        by_pattern[pattern][0].append(alone[-1])
        by_pattern[pattern][1].append(beside[-1])
        loads.append(os.getloadavg()[0])
    print("\n| beside | p50 | p99 | times alone | statuses | memory | load |\n|---|--:|--:|--:|---|--:|--:|")
    for pattern, (without, within) in by_pattern.items():
        print(row(pattern, within, without, memory_mib(process)))
    print(row("nobody, whole time", alone, alone, memory_mib(process)))
    print(row("hostile, whole time", beside, alone, memory_mib(process)))
    quiet, loud = (np.percentile(long(heard), (50, 99)) for heard in (alone, beside))
    print(f"long calls of the honest: p50 {quiet[0]:.0f} and {loud[0]:.0f} ms, p99 {quiet[1]:.0f} and {loud[1]:.0f} ms")
    print(f"load of the machine: {min(loads):.0f} to {max(loads):.0f}, {sum(loads) / len(loads):.0f} on average")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help=", ".join(PATTERNS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parsed = parser.parse_args()
    entries = "".join(
        f'[[caller]]\nname = "{name}"\nrole = "reader"\ntenant = "{name}"\ntoken_sha256 = "{digest(name)}"\n'
        for name in ("honest", "hostile")
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "callers.toml").write_text(entries)
        with serving("--tokens", f"{folder}/callers.toml") as (process, port):
            honest(port, 3.0)
            patterns = parsed.patterns or list(PATTERNS)
            if parsed.minutes:
                hours(port, process, patterns, parsed.minutes, parsed.seconds)
            else:
                table(port, process, patterns, parsed.rounds, parsed.seconds)


if __name__ == "__main__":
    main()
