"""Sends every method mutated valid messages without a wire between: as `fuzz_service.py`, at the speed of the code behind the gate.

python scripts/stress/fuzz_inside.py [--messages 100000] [--seed 1] [--method Predict ...] [--minutes 60]

Bytes are parsed, looked at, answered and written as in the server (rpc/router.py), over a store in SQLite, by an admin. Left out are gRPC, the
gate, and the walls of the process that reads uploads: its functions are called here. No message is a valid one as it was. Seeds are such that an answer costs little: one axis, one budget, few candidates. INTERNAL is any exception that is none of
ours; SLOW a call of more than ten seconds of CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from fuzz_mutate import Mutate
from fuzz_random import CONFIGS, serialized
from fuzz_service import ANSWERS, insane
from fuzz_valid import Valid, name_of, small_calibrations
from google.rpc import code_pb2

from tilewise.client.publish import _messages
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.served import ServedDatabase
from tilewise.hwdb.store import uploads as uploading
from tilewise.hwdb.store.store import SHARED, STALE_S, Store
from tilewise.server.limits import limited_to
from tilewise.server.messages.status import to_status
from tilewise.server.service import uploads
from tilewise.server.service.rpc.methods import Method, methods
from tilewise.server.service.rpc.router import parsed
from tilewise.server.service.servicers import services

SLOW_S = 10.0
CANDIDATES = 2000
BUDGET = """[check]
gpus = ["{gpu}"]
[[check.workload]]
name = "serve"
phase = "prefill"
sequence = 512
[[check.budget]]
config = "configs/*.json"
metric = "time_s"
max_regression = "2 %"
"""
SWEEP_AFTER = 200  # messages, after which uploads that a changed header began are forgotten
Answer = Callable[[Any], Any]


class Cheap(Valid):
    """Seeds whose answer costs one pass or two."""

    def _Predict(self) -> Any:
        asked = super()._Predict()
        asked.diagnose = self._random.random() < 0.005
        return asked

    def _BatchPredict(self) -> Any:
        asked = super()._BatchPredict()
        del asked.requests[2:]
        for one in asked.requests:
            one.detail = min(one.detail, 1)
        return asked

    def _Sweep(self) -> Any:
        asked = super()._Sweep()
        del asked.axes[1:], asked.gpus[1:]
        del asked.axes[0].values[1:]
        if asked.axes[0].HasField("range"):
            asked.axes[0].range.last = asked.axes[0].range.first
        return asked

    def _Recommend(self) -> Any:
        asked = super()._Recommend()
        del asked.workloads[1:]
        asked.neighbourhood.max_candidate_count = 2
        if not asked.kinds:
            asked.kinds.append(1)
        return asked

    def _Check(self) -> Any:
        asked = super()._Check()
        asked.policy_toml = BUDGET.format(gpu=self._random.choice(("h100-sxm5-80gb", "mi300x")))
        return asked


def directly(function: str, *arguments: str, alive: Callable[[], None]) -> Any:
    """What confined() answers, by the same function and through the same JSON, without a process."""
    module, _, name = function.partition(":")
    return json.loads(json.dumps(getattr(import_module(module), name)(*arguments)))


def changed(make: Callable[[], list[bytes]], count: int, valid: set[bytes], seen: set[bytes]) -> Iterator[list[bytes]]:
    """So many calls, none of them a valid one as it was; `seen` learns how many differ."""
    while count:
        sent = make()
        key = hashed(sent)
        if key not in valid:
            seen.add(key)
            count -= 1
            yield sent


def hashed(sent: list[bytes]) -> bytes:
    return hashlib.blake2b(b"\0".join(sent), digest_size=12).digest()


def outcome(method: Method, answer: Answer, sent: list[bytes]) -> str:
    """The status's name, with what is wrong where it is a bug."""
    begin = time.process_time()
    try:
        with limited_to(CANDIDATES):
            if method.client_streams:
                found = [answer(parsed(method, raw) for raw in sent)]
            else:
                found = answer(parsed(method, sent[0]))
                found = list(found) if method.server_streams else [found]
            contents = [each.SerializeToString() for each in found]
    except TilewiseError as error:
        return code_pb2.Code.Name(to_status(error).code)
    except Exception as error:  # noqa: BLE001 - which is what is looked for
        return f"INTERNAL: {error!r}"
    if time.process_time() - begin > SLOW_S:
        return f"SLOW: {time.process_time() - begin:.1f} s"
    kind = ANSWERS.get(method.title)
    wrong = next(filter(None, (insane(kind.FromString(content)) for content in contents if kind)), "")
    return f"INSANE: {wrong}" if wrong else "OK"


def attack(
    method: Method, answer: Answer, calls: Iterator[list[bytes]], store: Store, seconds: float
) -> tuple[Counter[str], list[str]]:
    codes: Counter[str] = Counter()
    bugs: list[str] = []
    end = time.monotonic() + seconds
    for number, sent in enumerate(calls):
        code = outcome(method, answer, sent)
        codes[code.partition(":")[0]] += 1
        if ":" in code:
            bugs.append(f"{method.name} {code} {[each.hex() for each in sent]}")
            print(bugs[-1][:5000], file=sys.stderr, flush=True)
        if method.client_streams and number % SWEEP_AFTER == 0:
            store.sweep(time.time() + STALE_S + 1)
        if time.monotonic() > end:
            break
    return codes, bugs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--method", action="append", default=[])
    parser.add_argument("--minutes", type=float, default=60.0, help="for a method at most")
    options = parser.parse_args()
    uploads.confined = uploading.confined = directly  # type: ignore[assignment]
    found: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder, some = Path(name), random.Random(options.seed)
        store = Store(folder / "store")
        answering = services(ServedDatabase(Database.packaged().folder, store, SHARED, lambda: None), "fuzz")
        given = small_calibrations(folder, some)
        valid, mutate = Cheap(some, CONFIGS, given), Mutate(some)
        hand_in(given, answering)
        print(
            "| method | messages | distinct | OK | statuses | bugs | CPU | memory at most |\n|---|--:|--:|--:|---|--:|--:|--:|"
        )
        for method in methods():
            if options.method and method.name not in options.method:
                continue

            def make(method: Method = method) -> list[bytes]:
                return serialized(mutate.mutated(valid.request(method.name)))

            begin, seen = time.process_time(), set[bytes]()
            seeds = {hashed(serialized(valid.request(method.name))) for _ in range(300)}
            calls = changed(make, options.messages, seeds, seen)
            answer: Answer = getattr(answering[method.service], method.name)
            codes, bugs = attack(method, answer, calls, store, 60 * options.minutes)
            found += bugs
            told = ", ".join(f"{code} {count:,}" for code, count in codes.most_common())
            row = f"| {method.title} | {codes.total():,} | {len(seen):,} | {codes['OK'] / codes.total():.0%} | {told} | {len(bugs)} |"
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{row} {time.process_time() - begin:.0f} s | {memory:.0f} MiB |", flush=True)
        store.close()
    sys.exit(1 if found else 0)


def hand_in(given: Sequence[Calibration], answering: dict[str, Any]) -> None:
    """What the server refuses stays a request that is refused."""
    for calibration in given:
        with suppress(TilewiseError):
            answering["CalibrationService"].UploadCalibration(_messages(calibration, name_of(calibration), {}))


if __name__ == "__main__":
    main()
