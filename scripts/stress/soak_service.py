"""Keeps a server busy with a mix of requests and watches its memory.

python scripts/stress/soak_service.py [--minutes 10] [--workers 1]

The mix: questions asked before and not, details and diagnoses, batches, lists, refusals, calls that are cancelled, and every ten
seconds a publication and a rollback. Memory should be flat after the first minutes, once the bounded caches are full.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import grpc
from bench_service import question, serving, unseen
from break_service import SKU, variant
from fuzz_random import CONFIGS
from fuzz_service import Fuzz, memory_mib

from tilewise.client.publish import publish
from tilewise.client.remote import Remote
from tilewise.hwdb.errors import TilewiseError
from tilewise.server.service.rpc.methods import methods
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1.advisor_service_pb2 import BatchPredictRequest, PredictRequest

CLIENTS = 4
ASKED = next(method for method in methods() if method.name == "Predict")
CALIBRATIONS = 4


class Client(threading.Thread):
    """Asks one thing after another until told to stop."""

    def __init__(self, port: int, stop: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])
        self._told, self._random, self._fuzz = stop, random.Random(seed), Fuzz(seed, CONFIGS, [])
        self.codes: Counter[str] = Counter()

    def run(self) -> None:
        kinds = [self.known, self.new, self.detailed, self.batch, self.gpus, self.nonsense, self.cancelled]
        while not self._told.is_set():
            try:
                self._random.choices(kinds, (40, 20, 10, 2, 10, 15, 3))[0]()
                self.codes["OK"] += 1
            except grpc.RpcError as error:
                self.codes[error.code().name] += 1

    def known(self) -> None:
        self.predict(question(num_hidden_layers=self._random.randrange(20, 40)))

    def new(self) -> None:
        self.predict(question(**unseen()))

    def detailed(self) -> None:
        asked = PredictRequest.FromString(question(**unseen()))
        asked.detail, asked.diagnose = self._random.choice((2, 3)), self._random.random() < 0.2
        self.predict(asked.SerializeToString())

    def batch(self) -> None:
        asked = BatchPredictRequest(requests=[PredictRequest.FromString(question(**unseen())) for _ in range(100)])
        self._channel.unary_unary("/tilewise.v1.AdvisorService/BatchPredict")(asked.SerializeToString(), timeout=30)

    def gpus(self) -> None:
        self._channel.unary_unary("/tilewise.v1.HardwareService/ListGpus")(b"", timeout=30)

    def nonsense(self) -> None:
        self.predict(self._fuzz.call(ASKED)[0])

    def cancelled(self) -> None:
        self._channel.unary_unary("/tilewise.v1.AdvisorService/Predict").future(question(**unseen())).cancel()

    def predict(self, asked: bytes) -> None:
        self._channel.unary_unary("/tilewise.v1.AdvisorService/Predict")(asked, timeout=30)


def publishing(port: int, folder: Path, stop: threading.Event, codes: Counter[str]) -> None:
    """Makes one calibration after another answer."""
    made = [variant(folder, str(number)) for number in range(CALIBRATIONS)]
    remote, number = Remote(f"127.0.0.1:{port}"), 0
    while not stop.wait(5):
        try:
            if number % 2:
                request = pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}")
                remote("CalibrationService", "RollbackCalibration", request)
            else:
                list(publish(made[number // 2 % CALIBRATIONS], f"127.0.0.1:{port}", promote=True))
            codes["changes"] += 1
        except TilewiseError as error:
            codes[error.reason] += 1
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parsed = parser.parse_args()
    stop, changes = threading.Event(), Counter[str]()
    with tempfile.TemporaryDirectory() as name, serving("--store", f"{name}/store") as (process, port):
        clients = [Client(port, stop, seed) for seed in range(CLIENTS)]
        changer = threading.Thread(target=publishing, args=(port, Path(name), stop, changes), daemon=True)
        for thread in (*clients, changer):
            thread.start()
        begin, answered = time.monotonic(), 0
        print("| minute | calls | server's memory |\n|--:|--:|--:|")
        while time.monotonic() - begin < 60 * parsed.minutes:
            time.sleep(30)
            now = sum(sum(client.codes.values()) for client in clients)
            minute = (time.monotonic() - begin) / 60
            print(f"| {minute:.1f} | {now - answered:,} | {memory_mib(process):.0f} MiB |", flush=True)
            answered = now
        stop.set()
        for thread in (*clients, changer):
            thread.join()
    codes = sum((client.codes for client in clients), changes)
    print(", ".join(f"{code} {count:,}" for code, count in codes.most_common()))


if __name__ == "__main__":
    main()
