"""Honest callers beside a hostile one: what they wait for an answer, alone and attacked, and what the server holds.

python scripts/stress/hostile_service.py [PATTERN ...] [--rounds 3] [--seconds 6]

The hostile one has a reader's token of its own (or none) and does one thing over and over (hostile_patterns.py). Four honest callers ask
every twentieth of a second, seven times of ten what was asked before. Windows alone and attacked take turns, so that others who use
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
from pathlib import Path

import grpc
import numpy as np
from bench_service import METHOD, question, serving, unseen
from fuzz_service import memory_mib
from hostile_patterns import PATTERNS, channel, signed

from tilewise.server.service.identity.callers import digest

CLIENTS, PAUSE_S, FRESH = 4, 0.02, 0.3
SETTLE_S = 2.0  # until an attack is under way
ATTACK = Path(__file__).with_name("hostile_patterns.py")
Heard = tuple[list[float], Counter[str]]


def honest(port: int, seconds: float) -> Heard:
    """Milliseconds of each answer, and the statuses."""
    took: list[float] = []
    codes: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def one() -> None:
        some = random.Random()
        with channel(port) as own:
            ask = own.unary_unary(METHOD)
            while time.monotonic() < end:
                sizes = unseen() if some.random() < FRESH else {"num_hidden_layers": some.randrange(20, 40)}
                asked, begin = question(**sizes), time.monotonic()
                try:
                    ask(asked, timeout=30, metadata=signed("honest"))
                    took.append(1e3 * (time.monotonic() - begin))
                    codes["OK"] += 1
                except grpc.RpcError as error:
                    codes[error.code().name] += 1
                time.sleep(PAUSE_S)

    threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, codes


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


def row(name: str, heard: list[Heard], alone: float, memory: float) -> str:
    took = [each for window, _ in heard for each in window] or [float("nan")]
    codes = sum((window for _, window in heard), Counter())
    p50, p99 = np.percentile(took, (50, 99))
    told = ", ".join(f"{code} {count:,}" for code, count in codes.most_common())
    times = f"{p99 / alone:.1f}" if alone else "1"
    return f"| {name} | {p50:.1f} ms | {p99:.1f} ms | {times} | {told} | {memory:.0f} MiB | {os.getloadavg()[0]:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help=", ".join(PATTERNS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parsed = parser.parse_args()
    entries = "".join(
        f'[[caller]]\nname = "{name}"\nrole = "reader"\ntenant = "{name}"\ntoken_sha256 = "{digest(name)}"\n'
        for name in ("honest", "hostile")
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "callers.toml").write_text(entries)
        with serving("--tokens", f"{folder}/callers.toml") as (process, port):
            honest(port, 3.0)
            print("| beside | p50 | p99 | times alone | statuses | memory | load |\n|---|--:|--:|--:|---|--:|--:|")
            for pattern in parsed.patterns or PATTERNS:
                alone, beside = [], []
                for _ in range(parsed.rounds):
                    alone.append(honest(port, parsed.seconds))
                    beside.append(attacked(port, pattern, parsed.seconds))
                quiet = float(np.percentile([each for window, _ in alone for each in window], 99))
                print(row("nobody", alone, 0.0, memory_mib(process)))
                print(row(pattern, beside, quiet, memory_mib(process)), flush=True)


if __name__ == "__main__":
    main()
