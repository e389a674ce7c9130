"""What a hostile caller does, each by itself and for ever: python scripts/stress/hostile_patterns.py PORT PATTERN.

Each is a function of a port; hostile_service.py measures what honest callers wait beside it. Only a server of one's own may be attacked.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import grpc
from bench_service import EXAMPLE, METHOD, question, unseen

from tilewise.hwdb.texts import TOML_PARTS_MAX
from tilewise.v1.advice_pb2 import Axis, Neighbourhood, Range, RecommendRequest, SweepRequest, WeightedWorkload
from tilewise.v1.advisor_service_pb2 import BatchPredictRequest, PredictRequest
from tilewise.v1.check_pb2 import CheckItem, CheckRequest

BATCH, SWEEP, RECOMMEND, CHECK = (
    f"/tilewise.v1.AdvisorService/{name}" for name in ("BatchPredict", "Sweep", "Recommend", "Check")
)
OPEN = (
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)
POLICY = """[check]
gpus = ["h100-sxm5-80gb"]
[[check.workload]]
name = "train"
phase = "train"
sequence = 4096
[[check.budget]]
config = "*.json"
metric = "time_s"
max_regression = "2 %"
"""
METADATA = list[tuple[str, str]]


def signed(token: str) -> METADATA:
    return [("authorization", f"Bearer {token}")]


def channel(port: int, **options: int) -> grpc.Channel:
    """A connection of its own."""
    own = {"grpc.use_local_subchannel_pool": 1, "grpc.max_receive_message_length": 64 << 20, **options}
    return grpc.insecure_channel(f"127.0.0.1:{port}", list(own.items()))


def repeated(port: int, path: str, asked: Iterator[bytes], at_once: int, timeout: float, metadata: METADATA) -> None:
    """That many calls in flight, for ever."""
    with channel(port) as own:
        call, lock = own.unary_stream(path), threading.Lock()

        def one() -> None:
            while True:
                with lock:
                    content = next(asked)
                with suppress(grpc.RpcError):
                    for _ in call(content, timeout=timeout, metadata=metadata):
                        pass

        threads = [threading.Thread(target=one) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def same(content: bytes) -> Iterator[bytes]:
    while True:
        yield content


def silent(port: int) -> None:
    """Calls that never send: to health, its watch, reflection and Predict."""
    end = threading.Event()

    def never() -> Iterator[bytes]:
        end.wait()
        yield b""

    while True:
        with channel(port) as own:
            held = [own.stream_stream(path)(never()) for path in OPEN for _ in range(60)]
            held += [own.stream_stream(METHOD)(never(), metadata=signed("hostile")) for _ in range(20)]
            threading.Event().wait(2)
            for call in held:
                call.cancel()


def batches(port: int) -> None:
    """10,000 different workloads with a deadline of two seconds."""
    whole = BatchPredictRequest(
        requests=[PredictRequest.FromString(question(num_hidden_layers=1 + at % 119)) for at in range(10_000)]
    )
    for number, one in enumerate(whole.requests):
        one.workload.sequence = 512 + number
    repeated(port, BATCH, same(whole.SerializeToString()), 2, 2.0, signed("hostile"))


def sweeps(port: int) -> None:
    """Two hundred thousand shapes, of which it reads nothing."""
    base = PredictRequest.FromString(question())
    axes = [Axis(field="vocab_size", range=Range(first=1000, last=200_000))]
    sweep = SweepRequest(model=base.model, workload=base.workload, gpus=[base.gpu], axes=axes).SerializeToString()
    while True:
        with channel(port) as own:
            held = [own.unary_stream(SWEEP)(sweep, metadata=signed("hostile")) for _ in range(8)]
            threading.Event().wait(2)
            for call in held:
                call.cancel()


def contexts(port: int) -> None:
    """A sweep over contexts, which are predicted one by one, and is read."""
    base = PredictRequest.FromString(question())
    base.workload.phase, base.workload.sequence, base.workload.context = 3, 0, 1
    axes = [Axis(field="context", range=Range(first=1, last=100_000))]
    sweep = SweepRequest(model=base.model, workload=base.workload, gpus=[base.gpu], axes=axes)
    repeated(port, SWEEP, same(sweep.SerializeToString()), 4, 20.0, signed("hostile"))


def searches(port: int) -> None:
    """A million candidates."""
    base = PredictRequest.FromString(question())
    asked = RecommendRequest(
        model=base.model, workloads=[WeightedWorkload(workload=base.workload)], gpus=[base.gpu],
        neighbourhood=Neighbourhood(max_parameter_change=1.0, max_candidate_count=1_000_000),
    )  # fmt: skip
    repeated(port, RECOMMEND, same(asked.SerializeToString()), 4, 20.0, signed("hostile"))


def checks(port: int) -> None:
    """Two thousand changed configurations a check."""
    items = [
        CheckItem(path=f"{at}.json", head=EXAMPLE.replace("14336", str(14336 + 8 * at)), base=EXAMPLE)
        for at in range(2000)
    ]
    asked = CheckRequest(policy_toml=POLICY, items=items, date="2026-11-28")
    repeated(port, CHECK, same(asked.SerializeToString()), 4, 20.0, signed("hostile"))


def bombs(port: int) -> None:
    """TOML with a key of 20,000 parts."""
    bomb = PredictRequest.FromString(question())
    bomb.model.shape_toml = "[model]\n" + ".".join("a" * 20_000) + " = 1\n"
    repeated(port, METHOD, same(bomb.SerializeToString()), 20, 2.0, signed("hostile"))


def fresh(port: int) -> None:
    """Sixteen questions at a time that nobody asked before."""
    repeated(port, METHOD, (question(**unseen()) for _ in count()), 16, 20.0, signed("hostile"))


def wide(port: int) -> None:
    """Configurations of a megabyte and 90,000 values, another each time."""
    config = json.loads(EXAMPLE) | {"note": ["abcdefg"] * 90_000}

    def asked() -> Iterator[bytes]:
        base = PredictRequest.FromString(question())
        for number in count():
            base.model.config_json = json.dumps(config | {"number": number}, separators=(",", ":"))
            yield base.SerializeToString()

    repeated(port, METHOD, asked(), 8, 20.0, signed("hostile"))


def tomls(port: int) -> None:
    """Shapes in TOML, with as many values as are read."""
    base = PredictRequest.FromString(question())

    def asked() -> Iterator[bytes]:
        for number in count():
            base.model.shape_toml = f"[model]\nnumber = {number}\n" + "".join(
                f"k{at} = 1\n" for at in range(TOML_PARTS_MAX - 10)
            )
            yield base.SerializeToString()

    repeated(port, METHOD, asked(), 8, 20.0, signed("hostile"))


def stranger(port: int) -> None:
    """Sixteen calls at a time without a token."""
    repeated(port, METHOD, same(question()), 16, 2.0, [])


def known(port: int) -> None:
    """Sixteen questions at a time that were asked before."""
    repeated(port, METHOD, same(question()), 16, 2.0, signed("hostile"))


def cancels(port: int) -> None:
    """Calls that are given up at once."""
    with channel(port) as own:
        call = own.unary_unary(METHOD)
        while True:
            begun = [call.future(question(**unseen()), metadata=signed("hostile")) for _ in range(50)]
            for each in begun:
                each.cancel()


def squeezed(port: int) -> None:
    """Fifteen megabytes of zeros as fifteen kilobytes of gzip."""
    with channel(port) as own:
        call: Any = own.unary_unary(METHOD)
        zeros = bytes(15 << 20)
        while True:
            with suppress(grpc.RpcError):
                call(zeros, timeout=5, metadata=signed("hostile"), compression=grpc.Compression.Gzip)


def headed(port: int) -> None:
    """Calls with as much metadata as is taken."""
    repeated(port, METHOD, same(question()), 16, 2.0, [("x-padding", "a" * 12_000), *signed("nobody")])


def connecting(port: int) -> None:
    """A connection for each call, without a token."""
    while True:
        with channel(port) as own, suppress(grpc.RpcError):
            own.unary_unary(METHOD)(b"", timeout=2)


PATTERNS: dict[str, Callable[[int], None]] = {
    each.__name__: each
    for each in (
        silent, batches, sweeps, contexts, searches, checks, bombs, fresh, wide, tomls, stranger, known, cancels, squeezed, headed,
        connecting,
    )
}  # fmt: skip


if __name__ == "__main__":
    PATTERNS[sys.argv[2]](int(sys.argv[1]))
