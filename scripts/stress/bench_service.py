"""What a server carries: Predict of Llama-3-8B over gRPC from a second process, at 1, 16 and 64 calls in flight.

python scripts/stress/bench_service.py [--seconds 5] [--repeat 3] [--workers 1] [--bare]

"asked before": the same question every time, answered from memory; "never asked before": another shape every time.
CPU is the server's own, so that its inverse is what one core carries with a machine of its own. The best of the repeats is
shown: others who use the machine only ever make it slower. --bare: CPU a call at 16 in flight beside a handler of grpcio that answers
as many bytes and does nothing else, the two in turns in one run; the median of the turns' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import grpc.aio

from tilewise.v1.advisor_service_pb2 import BatchPredictRequest, PredictRequest
from tilewise.v1.advisor_service_pb2_grpc import AdvisorServiceStub
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import PHASE_PREFILL, Workload

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = json.dumps(json.loads((ROOT / "examples" / "llama-3-8b.json").read_text()))
METHOD = "/tilewise.v1.AdvisorService/Predict"
IN_FLIGHT = (1, 16, 64)
NUMBERS = count()
BATCH = 1000
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[tuple[int, int]]:
    """A `tilewise serve` in its own process: its process id and port."""
    own = {**os.environ, **environment}
    run = [sys.executable, "-m", "tilewise", "serve", "--address", "127.0.0.1:0"]
    command = [*run, "--log-format", "none", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=own) as process:
        try:
            assert process.stderr is not None
            yield process.pid, int(process.stderr.readline().rpartition(":")[2])
        finally:
            process.terminate()


def question(**sizes: int) -> bytes:
    workload = Workload(phase=PHASE_PREFILL, batch=1, sequence=2048)
    model = Model(config_json=EXAMPLE, overrides=sizes)
    return PredictRequest(model=model, workload=workload, gpu="h100-sxm5-80gb").SerializeToString()


def questions(fresh: bool) -> Iterator[bytes]:
    """One question for ever, or another shape every time."""
    same = question()
    while True:
        yield question(**unseen()) if fresh else same


def unseen() -> dict[str, int]:
    """Sizes that were not asked for before, aligned as real ones are."""
    number = next(NUMBERS)
    return {"intermediate_size": 4096 + 64 * (number % 300), "vocab_size": 64_000 + 64 * (number // 300)}


def cpu_s(process: int) -> float:
    """CPU seconds of a process and its children."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(folder.name) == process or int(fields[1]) == process:
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


async def load(port: int, in_flight: int, seconds: float, asked: Iterator[bytes]) -> list[float]:
    """Latencies in seconds, in a closed loop. One channel for every eight calls, as eight clients would have."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) for _ in range((in_flight + 7) // 8)]
    calls = [channel.unary_unary(METHOD) for channel in channels]
    await asyncio.gather(*(call(next(asked)) for call in calls))
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def one(number: int) -> None:
        while (begin := time.perf_counter()) < end:
            await calls[number % len(calls)](next(asked))
            times.append(time.perf_counter() - begin)

    await asyncio.gather(*(one(number) for number in range(in_flight)))
    for channel in channels:
        await channel.close()
    return sorted(times)


def measured(process: int, port: int, in_flight: int, seconds: float, fresh: bool) -> tuple[float, ...]:
    """Calls a second, p50, p99 and the server's CPU a call in ms."""
    before = cpu_s(process)
    times = asyncio.run(load(port, in_flight, seconds, questions(fresh)))
    spent = cpu_s(process) - before
    at = {share: times[int(share * len(times))] * 1e3 for share in (0.5, 0.99)}
    return len(times) / seconds, at[0.5], at[0.99], 1e3 * spent / len(times)


BARE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
handler = grpc.unary_unary_rpc_method_handler(lambda asked, context, answer=bytes(int(sys.argv[2])): answer)
class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        return handler
server = grpc.server(ThreadPoolExecutor(2), [Handlers()])
print(server.add_insecure_port("127.0.0.1:0"), file=sys.stderr, flush=True)
server.start()
server.wait_for_termination()
"""


@contextmanager
def bare(size: int) -> Iterator[tuple[int, int]]:
    """A server that answers everything with so many zeros: its process id and port."""
    with subprocess.Popen([sys.executable, "-c", BARE, "", str(size)], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.pid, int(process.stderr.readline())
        finally:
            process.terminate()


def compare(seconds: float, repeat: int) -> None:
    """CPU a call beside a bare handler's."""
    with serving() as (process, port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            size = len(channel.unary_unary(METHOD)(question()))
        with bare(size) as (other, at):
            for fresh in (False, True):
                turns = []
                for _ in range(repeat):
                    ours = measured(process, port, 16, seconds, fresh)[-1]
                    turns.append((ours, measured(other, at, 16, seconds, fresh)[-1]))
                ratio = statistics.median(ours / bare for ours, bare in turns)
                told = ", ".join(f"{ours:.2f}/{bare:.2f}" for ours, bare in turns)
                name = "never asked before" if fresh else "asked before"
                print(
                    f"{name}: {ratio:.2f} times a bare handler's CPU (ms: {told}; load {os.getloadavg()[0]:.0f})",
                    flush=True,
                )


def batches(port: int, seconds: float) -> float:
    """Shapes a second that one client gets answered in batches of BATCH, none asked before."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", 64 << 20)]) as channel:
        stub, done, begin = AdvisorServiceStub(channel), 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            requests = [PredictRequest.FromString(question(**unseen())) for _ in range(BATCH)]
            done += len(stub.BatchPredict(BatchPredictRequest(requests=requests)).results)
        return done / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--workers", default="1")
    parser.add_argument("--bare", action="store_true")
    parsed = parser.parse_args()
    if parsed.bare:
        compare(parsed.seconds, parsed.repeat)
        return
    print("| question | in flight | calls/s | p50 | p99 | server CPU a call | a core carries |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    with serving("--workers", parsed.workers) as (process, port):
        for fresh in (False, True):
            for in_flight in IN_FLIGHT:
                runs = [measured(process, port, in_flight, parsed.seconds, fresh) for _ in range(parsed.repeat)]
                rate, p50, p99, cpu = max(runs)
                name = "never asked before" if fresh else "asked before"
                row = f"| {name} | {in_flight} | {rate:,.0f} | {p50:.1f} ms | {p99:.1f} ms | {cpu:.2f} ms |"
                print(f"{row} {1e3 / cpu:,.0f}/s |", flush=True)
        rates = [batches(port, parsed.seconds) for _ in range(parsed.repeat)]
        print(f"\nBatchPredict, {BATCH:,} shapes a call, none asked before: {max(rates):,.0f} shapes/s")


if __name__ == "__main__":
    main()
