"""Sends every method of the contract messages that no reasonable caller would, and looks at every answer.

python scripts/stress/fuzz_service.py [--messages 100000] [--seed 1] [--method Predict ...] [--configs DIR]

Half are valid requests with up to three fields changed (fuzz_valid.py, fuzz_mutate.py), a quarter are of the right schema with
figures out of the blue, a quarter are broken bytes (fuzz_random.py). A status that blames the caller is good, and so is a sane
answer. Bugs are INTERNAL and UNKNOWN, as a status or inside an answer; an answer whose numbers are not finite or whose intervals
are upside down; a call that outlasts its deadline; and a server that is gone or has grown. The seed makes a run repeatable; a
message that found a bug is printed in hexadecimal. --configs: a folder of config.json files of more families.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from bench_service import serving
from fuzz_mutate import Mutate
from fuzz_random import CONFIGS, Blue, broken, serialized
from fuzz_valid import Valid, hand_over, small_calibrations
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.status_pb2 import Status

from tilewise.client.access import access
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.store.store import STALE_S, Store
from tilewise.server.service.rpc.methods import FILES, Method, methods
from tilewise.v1.prediction_pb2 import Prediction

BUGS = ("INTERNAL", "UNKNOWN", "CANCELLED", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED", "INSANE")
IN_FLIGHT = 16
DEADLINE_S = 60.0
CANDIDATES = "2000"  # of the server that is fuzzed, so that a range made long costs milliseconds
OPTIONS = [("grpc.max_receive_message_length", 64 << 20)]
ANSWERS = {  # whose numbers are looked at: those of the others are the database's own
    f"{service.name}/{method.name}": GetMessageClass(method.output_type)
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if service.name != "HardwareService"
}


class Fuzz:
    """Makes the messages of calls."""

    def __init__(self, seed: int, configs: Sequence[str], calibrations: Sequence[Calibration]) -> None:
        self._random = random.Random(seed)
        self._blue, self._mutate = Blue(self._random), Mutate(self._random)
        self._valid = Valid(self._random, configs, calibrations)

    def call(self, method: Method) -> list[bytes]:
        kind = self._random.randrange(4)
        if kind == 0:
            return serialized(self._out_of_the_blue(method))
        messages = self._valid.request(method.name)
        if kind == 1:
            chosen = messages if self._random.random() < 0.5 else self._out_of_the_blue(method)
            return [broken(content, self._random) for content in serialized(chosen)]
        return serialized(self._mutate.mutated(messages))

    def _out_of_the_blue(self, method: Method) -> list[Message]:
        return [self._blue.filled(method.request()) for _ in range(3 if method.client_streams else 1)]


async def attack(
    address: str, channel: grpc.aio.Channel, method: Method, fuzz: Fuzz, messages: int, seconds: float
) -> tuple[Counter[str], list[str]]:
    """Statuses by count, and what found a bug."""
    codes: Counter[str] = Counter()
    bugs: list[str] = []
    left, end = iter(range(messages)), time.monotonic() + seconds

    async def one() -> None:
        for _ in left:
            if time.monotonic() > end:
                return
            sent = fuzz.call(method)
            code = await outcome(address, channel, method, sent)
            codes[code.partition(":")[0]] += 1
            if code.startswith(BUGS):
                bugs.append(f"{method.name} {code} {[each.hex() for each in sent]}")
                print(bugs[-1][:5000], file=sys.stderr, flush=True)

    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    return codes, bugs


async def outcome(address: str, channel: grpc.aio.Channel, method: Method, sent: list[bytes]) -> str:
    """The status's name, with what is wrong where it is a bug."""
    answers: list[bytes] = []
    try:
        if method.client_streams:
            answers = [await asyncio.to_thread(streamed, address, method, sent)]
        elif method.server_streams:
            async for answer in channel.unary_stream(method.path)(
                sent[0], timeout=DEADLINE_S, metadata=signed(address)
            ):
                answers.append(answer)
        else:
            answers = [await channel.unary_unary(method.path)(sent[0], timeout=DEADLINE_S, metadata=signed(address))]
    except grpc.RpcError as error:
        name: str = error.code().name
        return f"{name}: {error.details()}" if name in BUGS else name
    kind = ANSWERS.get(method.title)
    wrong = next(filter(None, (insane(kind.FromString(answer)) for answer in answers if kind)), "")
    return f"INSANE: {wrong}" if wrong else "OK"


@cache
def signed(address: str) -> list[tuple[str, str]]:
    """As the server's own user calls, who may call everything."""
    return [("authorization", f"Bearer {access(address).token}")]


def streamed(address: str, method: Method, sent: list[bytes]) -> bytes:
    """Without asyncio, whose client takes a server that answers before the end for an internal error."""
    with grpc.insecure_channel(address) as channel:
        answer: bytes = channel.stream_unary(method.path)(iter(sent), timeout=DEADLINE_S, metadata=signed(address))
        return answer


def insane(message: Any) -> str:
    """What no answer may hold: a bug's status, a number that is none, an interval upside down; "" where all is well."""
    if isinstance(message, Status):
        return message.message if message.code in (2, 13) else ""
    if isinstance(message, Prediction) and not 0 <= message.time_low_s <= message.time_s <= message.time_high_s:
        return f"{message.time_s} s outside of {message.time_low_s} to {message.time_high_s}"
    for field, value in message.ListFields():
        if field.message_type and field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else (value,):
            wrong = insane(each) if field.message_type else ""
            if isinstance(each, float) and not math.isfinite(each):
                wrong = f"{field.full_name} is {each}"
            if wrong:
                return wrong
    return ""


def run(
    address: str,
    messages: int,
    seed: int,
    only: Sequence[str] = (),
    configs: Sequence[str] = CONFIGS,
    seconds: float = math.inf,
) -> Iterator[tuple[Method, Counter[str], list[str], float]]:
    """Method, statuses, bugs and seconds, one method after another; `seconds`: for a method at most."""
    with tempfile.TemporaryDirectory() as folder:
        given = small_calibrations(Path(folder), random.Random(seed))
        hand_over(address, given)
        for method in methods():
            if only and method.name not in only:
                continue

            async def each(method: Method = method) -> tuple[Counter[str], list[str]]:
                async with grpc.aio.insecure_channel(address, OPTIONS) as channel:
                    return await attack(address, channel, method, Fuzz(seed, configs, given), messages, seconds)

            begin = time.monotonic()
            codes, bugs = asyncio.run(each())
            yield method, codes, bugs, time.monotonic() - begin


def forget_unfinished(folder: str, stop: threading.Event) -> None:
    """Uploads that a changed header began are never finished; without this, sixteen of them shut out all others."""
    store = Store(folder)
    while not stop.wait(0.5):
        store.sweep(time.time() + STALE_S + 1)
    store.close()


def memory_mib(process: int) -> float:
    """Of a process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    lines = (line for id in (process, *children) for line in Path(f"/proc/{id}/status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--method", action="append", default=[])
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--minutes", type=float, default=math.inf, help="for a method at most")
    parsed = parser.parse_args()
    configs = [path.read_text() for path in sorted(parsed.configs.rglob("*.json"))] if parsed.configs else CONFIGS
    found: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving("--store", folder, "--candidates", CANDIDATES) as (process, port),
    ):
        stop = threading.Event()
        threading.Thread(target=forget_unfinished, args=(folder, stop), daemon=True).start()
        print("| method | messages | OK | statuses | bugs | seconds | server's memory |\n|---|--:|--:|---|--:|--:|--:|")
        for method, codes, bugs, seconds in run(
            f"127.0.0.1:{port}", parsed.messages, parsed.seed, parsed.method, configs, 60 * parsed.minutes
        ):
            found += bugs
            told = ", ".join(f"{code} {count:,}" for code, count in codes.most_common())
            row = f"| {method.title} | {codes.total():,} | {codes['OK'] / codes.total():.0%} | {told} | {len(bugs)} |"
            print(f"{row} {seconds:.0f} | {memory_mib(process):.0f} MiB |", flush=True)
        stop.set()
    print(*(each[:2000] for each in found[:50]), sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
