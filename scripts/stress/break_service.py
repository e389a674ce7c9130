"""Breaks a server in the ways that servers break, and says what its clients saw.

python scripts/stress/break_service.py [kills] [full] [connections] [worker] [clock] [--times 100] [--store DIR|URL]

kills: kill -9 at a random point of an upload, publication and deletion, then look whether anything is half there or lost that was acknowledged.
full: the store's disk takes no more. connections: 10,000 of them, open and silent. worker: one of two dies under load.
clock: the server's clock jumps a day forward and a day back (libfaketime; Debian: apt-get install faketime).
The database that goes and comes back, slow readers and callers that never send are in tests/service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc.aio
from bench_service import METHOD, question, serving
from break_clock import clock
from fuzz_service import memory_mib

from tilewise.client.client import TilewiseClient
from tilewise.client.publish import delete, publish
from tilewise.client.remote import OPTIONS
from tilewise.hwdb.calibration import Calibration, canonical, identify
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotFound, TilewiseError
from tilewise.hwdb.store.store import SHARED, Store

ROOT = Path(__file__).resolve().parents[2]
SKU = "h100-sxm5-80gb"
CONNECTIONS = 10_000
SMALL = ("gemm",)  # families of the calibrations that are published here: small, so that a kill falls anywhere


def variant(folder: Path, name: str) -> Calibration:
    """The packaged H100 calibration with few families, under an id of its own."""
    shutil.copytree(ROOT / "hwdb" / "calibrations" / SKU / str(Database.packaged().active(SKU)), folder / name)
    card = json.loads((folder / name / "card.json").read_text())
    for family in set(card["families"]) - set(SMALL):
        (folder / name / "measurements" / f"{family}.csv").unlink()
        del card["families"][family]
    (folder / name / "card.json").write_bytes(canonical({**card, "note": name}))
    return identify(folder / name)


def kills(times: int, where: str) -> None:
    """Each time another calibration is published, the one before is deleted, and the server killed at a random moment of it."""
    seen: Counter[str] = Counter()
    acknowledged: list[str] = []
    moments = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), where or f"{name}/store"
        before = variant(folder, "whole")
        with serving("--store", store) as (_, port):  # how long it takes undisturbed
            begin = time.monotonic()
            for _ in steps(before, variant(folder, "first"), port):
                pass
            whole_s = time.monotonic() - begin
        for number in range(times):
            calibration = variant(folder, str(number))
            with serving("--store", store) as (process, port):
                timer = threading.Timer(moments.uniform(0, whole_s), os.kill, (process, signal.SIGKILL))
                timer.start()
                broken, known = "", len(acknowledged)
                try:
                    acknowledged.extend(steps(calibration, before, port))
                    seen["the whole, before the kill"] += 1
                except TilewiseError as error:
                    step = "nothing" if len(acknowledged) == known else acknowledged[-1].partition(" ")[0]
                    broken = f"{error.reason} after: {step}; went on at the next start"
                    seen[broken] += 1
                timer.join()
            examine(store, acknowledged)
            if broken:  # at a server that was started anew it goes on where it stopped
                with serving("--store", store) as (_, port):
                    acknowledged.extend(steps(calibration, before, port))
            before = calibration
            if number % 10 == 9:
                print(f"kills: {number + 1} of {times} done", file=sys.stderr, flush=True)
    print(f"kills: {times} times at a random point of {whole_s:.1f} s: nothing half there, nothing lost")
    for what, count in seen.most_common():
        print(f"  {count:4}  {what}")


def steps(calibration: Calibration, before: Calibration, port: int) -> Iterator[str]:
    """Publish one and delete another, which may be gone by now: what was acknowledged, as it comes."""
    address = f"127.0.0.1:{port}"
    for line in publish(calibration, address, promote=True):
        if line.startswith("uploaded") or "answers" in line:
            yield f"{'publish' if 'answers' in line else 'upload'} {calibration.id}"
    with suppress(NotFound):
        delete(SKU, before.id, address, "")
        yield f"delete {before.id}"


def examine(where: str, acknowledged: list[str]) -> None:
    """Whatever is there is whole; whatever was acknowledged is in the log, and what is there follows from the log."""
    store = Store(where)
    there: set[str] = set()
    active, done = None, set()
    for entry in store.history(SHARED, SKU):
        done.add(f"{entry.action} {entry.id}")
        if entry.action == "upload":
            there.add(entry.id)
        elif entry.action == "delete":
            there.remove(entry.id)
        else:
            active = entry.id
    assert set(acknowledged) <= done, f"acknowledged and lost: {set(acknowledged) - done}"
    assert set(store.ids((SHARED,), SKU)) == there, "the log and what is there differ"
    assert store.active((SHARED,), SKU) == active, "the log and what answers differ"
    for id in there:
        calibration = store.open((SHARED,), SKU, id)
        assert calibration.content_sha256() == calibration.sha256, f"{id} is not whole"
    store.close()


def full() -> None:
    """The server's files may not grow any more; then they may again."""
    with tempfile.TemporaryDirectory() as name, serving("--store", f"{name}/store") as (process, port):
        calibration, address = variant(Path(name), "a"), f"127.0.0.1:{port}"
        resource.prlimit(process, resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        try:
            list(publish(calibration, address, promote=True))
            print("full: the publication went through, so nothing was tested")
        except TilewiseError as error:
            print(f"full: the publisher saw {type(error).__name__} {error.reason}: {error.message}")
        with TilewiseClient(address) as client:
            print(f"  questions meanwhile: {'answered' if client.get_gpu(SKU).gpu.sku == SKU else 'not answered'}")
        resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(f"  with space again: {list(publish(calibration, address, promote=True))[-1]}")


def connections() -> None:
    """So many that send nothing, while another client asks."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with serving("--metrics-address", "127.0.0.1:0") as (process, port):
        before_mib, quiet = memory_mib(process), asked_ms(port)
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
        for each in held[::2]:  # half of them greet as HTTP/2 does and then fall silent
            each.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        time.sleep(2)
        print(f"connections: {CONNECTIONS:,} open and silent; the server has {files(process):,} files open")
        during = asked_ms(port)
        print(f"  Predict takes {quiet:.2f} ms without them, {during:.2f} ms with them (median of 200)")
        print(f"  memory {before_mib:.0f} MiB before, {memory_mib(process):.0f} MiB with them")
        time.sleep(12)
        print(f"  after 12 s more the server has {files(process):,} files open: those that never greeted are closed")
        for each in held:
            each.close()


def asked_ms(port: int) -> float:
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        predict, asked, times = channel.unary_unary(METHOD), question(), []
        for _ in range(200):
            begin = time.perf_counter()
            predict(asked)
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def files(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def worker() -> None:
    """16 calls in flight for 6 s; one of two workers is killed after 2."""
    with serving("--workers", "2") as (process, port):
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=True
        )
        victim = int(listed.stdout.split()[0])
        threading.Timer(2.0, os.kill, (victim, signal.SIGKILL)).start()
        statuses, slowest = asyncio.run(loaded(port, 6.0))
    told = ", ".join(f"{status} {count:,}" for status, count in statuses.most_common())
    print(f"worker: killed under load of 16 in flight: the clients saw {told}; the slowest call took {slowest:.2f} s")


async def loaded(port: int, seconds: float) -> tuple[Counter[str], float]:
    """Statuses by count and the slowest call, with the retries of our client's service config."""
    own = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", own) for _ in range(16)]
    statuses: Counter[str] = Counter()
    end, slowest, asked = time.monotonic() + seconds, [0.0], question()

    async def one(channel: grpc.aio.Channel) -> None:
        predict = channel.unary_unary(METHOD)
        while (begin := time.monotonic()) < end:
            try:
                await predict(asked, timeout=10)
                statuses["OK"] += 1
            except grpc.aio.AioRpcError as error:
                statuses[error.code().name] += 1
            slowest[0] = max(slowest[0], time.monotonic() - begin)

    await asyncio.gather(*map(one, channels))
    for channel in channels:
        await channel.close()
    return statuses, slowest[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=["kills", "full", "connections", "worker", "clock", []])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--store", default="")
    parsed = parser.parse_args()
    faults = {
        "worker": worker, "connections": connections, "full": full, "kills": lambda: kills(parsed.times, parsed.store),
        "clock": lambda: clock(variant),
    }  # fmt: skip
    for name in parsed.which or faults:
        faults[name]()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
