"""Honest callers beside a hostile one: what they wait for an answer, alone and attacked, and what the server holds.

python scripts/stress/hostile_service.py [--minutes 5]

The hostile one has a reader's token of its own and does at once, over and over: silent calls to health, reflection and Predict, texts that
would cost much, batches of 10,000 with a deadline of two seconds, sweeps that it does not read. Honest callers ask what was asked before
and what was not, four at a time.
"""

from __future__ import annotations

import argparse
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
from bench_service import question, serving, unseen
from fuzz_service import memory_mib

from tilewise.server.service.identity.callers import digest
from tilewise.v1.advice_pb2 import Axis, Range, SweepRequest
from tilewise.v1.advisor_service_pb2 import BatchPredictRequest, PredictRequest

CLIENTS = 4
PREDICT, BATCH, SWEEP = (f"/tilewise.v1.AdvisorService/{name}" for name in ("Predict", "BatchPredict", "Sweep"))
OPEN = (
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)


def signed(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def honest(port: int, seconds: float) -> tuple[list[float], Counter[str]]:
    """Milliseconds of each answer, and the statuses."""
    took: list[float] = []
    codes: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def one(seed: int) -> None:
        some = random.Random(seed)
        with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            ask = channel.unary_unary(PREDICT)
            while time.monotonic() < end:
                asked = (
                    question(**unseen()) if some.random() < 0.3 else question(num_hidden_layers=some.randrange(20, 40))
                )
                begin = time.monotonic()
                try:
                    ask(asked, timeout=30, metadata=signed("honest"))
                    took.append(1e3 * (time.monotonic() - begin))
                    codes["OK"] += 1
                except grpc.RpcError as error:
                    codes[error.code().name] += 1
                time.sleep(0.02)

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, codes


def attack(port: int) -> None:
    """For ever; in a process of its own."""
    whole = BatchPredictRequest(
        requests=[PredictRequest.FromString(question(num_hidden_layers=at)) for at in range(1, 120)] * 84
    )
    for number, one in enumerate(whole.requests):
        one.workload.sequence = 512 + number
    base = PredictRequest.FromString(question())
    axes = [Axis(field="vocab_size", range=Range(first=1000, last=200_000))]
    sweep = SweepRequest(model=base.model, workload=base.workload, gpus=[base.gpu], axes=axes).SerializeToString()
    bomb = PredictRequest.FromString(question())
    bomb.model.shape_toml = "[model]\n" + ".".join("a" * 20_000) + " = 1\n"
    batch, heavy, token = whole.SerializeToString(), bomb.SerializeToString(), signed("hostile")
    end = threading.Event()

    def never() -> object:
        end.wait()
        yield b""

    while True:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])
        held = [channel.stream_stream(path)(never()) for path in OPEN for _ in range(60)]
        held += [channel.stream_stream(PREDICT)(never(), metadata=token) for _ in range(20)]
        held += [channel.unary_stream(SWEEP)(sweep, metadata=token) for _ in range(4)]
        asked = [channel.unary_unary(BATCH).future(batch, timeout=2, metadata=token) for _ in range(2)]
        asked += [channel.unary_unary(PREDICT).future(heavy, timeout=2, metadata=token) for _ in range(20)]
        for call in asked:
            call.code()
        for call in held:
            call.cancel()
        end.set()
        end = threading.Event()
        channel.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--attack", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.attack:
        attack(parsed.attack)
    entries = "".join(
        f'[[caller]]\nname = "{name}"\nrole = "reader"\ntenant = "{name}"\ntoken_sha256 = "{digest(name)}"\n'
        for name in ("honest", "hostile")
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "callers.toml").write_text(entries)
        with serving("--tokens", f"{folder}/callers.toml") as (process, port):
            print("| callers | calls | p50 | p99 | statuses | server's memory |\n|---|--:|--:|--:|---|--:|")
            hostile = None
            for name, seconds in (("alone", 30.0), *[("attacked", 30.0)] * max(1, int(2 * parsed.minutes))):
                if name == "attacked" and hostile is None:
                    hostile = subprocess.Popen(
                        [sys.executable, __file__, "--attack", str(port)], stderr=subprocess.DEVNULL
                    )
                took, codes = honest(port, seconds)
                p50, p99 = np.percentile(took, (50, 99))
                told = ", ".join(f"{code} {count:,}" for code, count in codes.most_common())
                print(
                    f"| {name} | {len(took):,} | {p50:.1f} ms | {p99:.1f} ms | {told} | {memory_mib(process):.0f} MiB |",
                    flush=True,
                )
            if hostile is not None:
                hostile.kill()
                hostile.wait()


if __name__ == "__main__":
    main()
