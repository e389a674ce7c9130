"""Sends every method of the contract messages that no reasonable caller would: of the right schema, and broken.

python scripts/fuzz_service.py [--messages 100000] [--seed 1] [--method Predict]

A message is good where the answer is a status that blames the caller, or an answer; INTERNAL and UNKNOWN are bugs, and so is a
server that is gone or has grown. The seed makes a run repeatable; a message that found a bug is printed in hexadecimal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from bench_service import serving
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tilewise.server.rpc.methods import Method, methods

ROOT = Path(__file__).resolve().parent.parent
BUGS = ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS")
IN_FLIGHT = 16
DEADLINE_S = 30.0
WORDS = [
    "", "h100-sxm5-80gb", "mi300x", "h999", "gpus/mi300x", "gpus/h100-sxm5-80gb/calibrations/x", "bf16", "\x00", "é" * 50,
    "../../etc/passwd", "gpus/../x", "a" * 5000, "1", "-1", "models/gemm.npz", "card.json", "0" * 64, "hidden_size", "NaN",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, 8, 64, 100, 4096, 2**31 - 1, -(2**31), 2**53, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, float("inf"), float("-inf"), float("nan")]


class Fuzz:
    """Makes messages. One in two has the schema and figures out of the blue, the others are broken."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._configs = [path.read_text() for path in (ROOT / "examples").glob("*.json")]

    def bytes_of(self, kind: type[Message]) -> bytes:
        message = self.message(kind(), 0).SerializeToString()
        return message if self._random.random() < 0.5 else self.broken(message)

    def message(self, message: Any, depth: int) -> Any:
        """Fills a message: from nothing, or, in every other question about a model, a good one with a few fields changed."""
        share = 0.75 if depth < 3 else 0.3
        if {"model", "workload"} <= set(message.DESCRIPTOR.fields_by_name) and self._random.random() < 0.5:
            self._good(message)
            share = 0.08
        for field in message.DESCRIPTOR.fields:
            if self._random.random() < share:
                self._fill(message, field, depth)
        return message

    def _good(self, message: Any) -> None:
        some = self._random
        message.model.config_json = some.choice(self._configs)
        message.workload.phase = some.choice((1, 2, 3))
        message.workload.batch, message.workload.sequence = some.choice((1, 4)), 1024
        message.workload.context = 1024 if message.workload.phase == 3 else 0
        if "gpu" in message.DESCRIPTOR.fields_by_name:
            message.gpu = some.choice(("h100-sxm5-80gb", "mi300x"))
        for name in some.sample(("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads"), 2):
            if some.random() < 0.3:
                message.model.overrides[name] = some.choice(NUMBERS)

    def broken(self, content: bytes) -> bytes:
        some = self._random
        cut = bytearray(content[: some.randrange(len(content) + 1)])
        for _ in range(some.randrange(6)):
            if cut:
                cut[some.randrange(len(cut))] = some.randrange(256)
        return bytes(cut) + some.randbytes(some.choice((0, 0, 1, 20)))

    def _fill(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        target = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            for _ in range(self._random.randrange(4)):
                if not value.message_type:
                    target[self._word()] = self._value(value)
        elif field.is_repeated:
            for _ in range(self._random.choice((0, 1, 2, 3, 20)) if depth < 4 else 0):
                self.message(target.add(), depth + 1) if field.message_type else target.append(self._value(field))
        elif field.message_type:
            self.message(target, depth + 1)
            target.SetInParent()
        else:
            setattr(message, field.name, self._value(field, message))

    def _value(self, field: FieldDescriptor, inside: Any = None) -> Any:
        some = self._random
        if field.enum_type:
            return some.choice([value.number for value in field.enum_type.values] + [99])
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            if field.name == "config_json":
                return self._config()
            if field.name == "gpu":
                return some.choice(["h100-sxm5-80gb", "mi300x", self._word()])
            word = self._word()
            return word.encode() if field.type == FieldDescriptor.TYPE_BYTES else word
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return some.random() < 0.5
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return some.choice(REALS)
        number = some.choice([*NUMBERS[:9], some.randrange(20_000), some.choice(NUMBERS)])
        wide = field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
        return number if wide else max(min(number, 2**31 - 1), -(2**31))

    def _word(self) -> str:
        return self._random.choice(WORDS)

    def _config(self) -> str:
        """A real config.json with some of its entries replaced by nonsense, or cut off."""
        some, content = self._random, json.loads(self._random.choice(self._configs))
        for key in list(content):
            if some.random() < 0.1:
                nonsense = [None, "x", [], {}, True, 1e308, [[[]]], {"a": {}}, *NUMBERS]
                content[key] = some.choice(nonsense)
        text = json.dumps(content)
        return (
            text
            if some.random() < 0.9
            else some.choice((text[: some.randrange(len(text))], "[" * 100_000, "{}", "1e9"))
        )


async def attack(
    address: str, channel: grpc.aio.Channel, method: Method, fuzz: Fuzz, messages: int
) -> tuple[Counter[str], list[str]]:
    """Statuses by count, and what found a bug."""
    codes: Counter[str] = Counter()
    bugs: list[str] = []
    left = iter(range(messages))

    async def one() -> None:
        for _ in left:
            sent = [fuzz.bytes_of(method.request) for _ in range(1 if not method.client_streams else 3)]
            code = await outcome(address, channel, method, sent)
            codes[code.partition(":")[0]] += 1
            if code.startswith(BUGS):
                bugs.append(f"{method.name} {code} {[each.hex() for each in sent]}")
                print(bugs[-1][:5000], file=sys.stderr, flush=True)

    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    return codes, bugs


def streamed(address: str, method: Method, sent: list[bytes]) -> str:
    """As `outcome`; without asyncio, whose client takes a server that answers before the end for an internal error."""
    with grpc.insecure_channel(address) as channel:
        try:
            channel.stream_unary(method.path)(iter(sent), timeout=DEADLINE_S)
        except grpc.RpcError as error:
            name: str = error.code().name
            return f"{name}: {error.details()}" if name in BUGS else name
    return "OK"


async def outcome(address: str, channel: grpc.aio.Channel, method: Method, sent: list[bytes]) -> str:
    try:
        if method.client_streams:
            return await asyncio.to_thread(streamed, address, method, sent)
        if method.server_streams:
            async for _ in channel.unary_stream(method.path)(sent[0], timeout=DEADLINE_S):
                pass
        else:
            await channel.unary_unary(method.path)(sent[0], timeout=DEADLINE_S)
    except grpc.aio.AioRpcError as error:
        name: str = error.code().name
        return f"{name}: {error.details()}" if name in BUGS else name
    return "OK"


def run(
    address: str, messages: int, seed: int, only: str = ""
) -> Iterator[tuple[Method, Counter[str], list[str], float]]:
    """Method, statuses, bugs and seconds, one method after another."""
    for method in methods():
        if only and method.name != only:
            continue

        async def each(method: Method = method) -> tuple[Counter[str], list[str]]:
            options = [("grpc.max_receive_message_length", 64 << 20)]
            async with grpc.aio.insecure_channel(address, options) as channel:
                return await attack(address, channel, method, Fuzz(seed), messages)

        begin = time.monotonic()
        codes, bugs = asyncio.run(each())
        yield method, codes, bugs, time.monotonic() - begin


def memory_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--method", default="")
    parsed = parser.parse_args()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder, serving("--store", folder) as (process, port):
        print("| method | messages | statuses | bugs | seconds | server's memory |\n|---|--:|---|--:|--:|--:|")
        for method, codes, bugs, seconds in run(f"127.0.0.1:{port}", parsed.messages, parsed.seed, parsed.method):
            found += bugs
            told = ", ".join(f"{code} {count:,}" for code, count in codes.most_common())
            row = f"| {method.title} | {sum(codes.values()):,} | {told} | {len(bugs)} | {seconds:.0f}"
            print(f"{row} | {memory_mib(process):.0f} MiB |", flush=True)
    print(*found[:50], sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
