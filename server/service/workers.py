"""Several processes behind one port: the kernel spreads connections over them (SO_REUSEPORT)."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tilewise.hwdb.errors import InvalidInput, Unavailable
from tilewise.hwdb.scratch import Scratch
from tilewise.server.service import logs
from tilewise.server.service.app import Server, end, stop_signal
from tilewise.server.service.identity import local
from tilewise.server.service.rpc.apart import give_way
from tilewise.server.service.settings import Settings, split_address

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-c", "from tilewise.server.service.workers import work; work()")
READY = "ready"
LOOK_S = 0.1
AGAIN_S = 1.0  # between two starts of a worker that does not stay
START_S = 60.0
END_S = 2.0


def supervise(settings: Settings) -> Iterator[str]:
    """Start the workers, yield the address, start those anew that end, and end all when told to."""
    stop = stop_signal()
    with (
        reserved(settings.address) as (held, address),
        Scratch() as scratch,
    ):
        each = dataclasses.replace(settings, address=address)
        folder, port = scratch.path, split_address(address, "address")[1]
        token = local.written(port) if settings.loopback and not settings.tokens else ""
        team = Team(each, folder, token)
        web = None
        try:
            team.start()
            if settings.metrics_address:
                from tilewise.server.service.web import Web

                web = Web(settings.metrics_address, lambda: sums(folder), team.all_ready)
            held.close()
            yield address
            while not stop.wait(LOOK_S):
                team.mend()
            log.info("stopping", extra={"line": {"grace_s": settings.grace_s}})
        finally:
            team.stop(settings.grace_s)
            local.forgotten(port, token)
            if web is not None:
                web.close()


class Team:
    """The workers. One that ends is started anew, at most once a second."""

    def __init__(self, settings: Settings, folder: Path, token: str = "", *, apart: bool = False) -> None:
        """token: of this machine's command line; apart: for long work (rpc/apart.py)"""
        self._settings, self._folder, self._token = settings, folder, token
        self._workers: list[Worker] = []

    def start(self) -> None:
        """Raises Unavailable where a worker does not come up; its log line says why."""
        self._workers = [Worker(self._settings, self._folder, self._token) for _ in range(self._settings.workers)]
        for worker in self._workers:
            if not worker.told.wait(START_S) or not worker.ready:
                raise Unavailable("a worker did not come up; the lines above say why", reason="WORKER_FAILED")

    def mend(self) -> None:
        for place, worker in enumerate(self._workers):
            if not worker.up() and time.monotonic() - worker.since > AGAIN_S:
                log.error("worker %d ended with %s and is started anew", worker.process.pid, worker.process.returncode)
                forget(self._folder, worker.process.pid)
                self._workers[place] = Worker(self._settings, self._folder, self._token)

    def all_ready(self) -> bool:
        return all(worker.up() and worker.ready for worker in self._workers)

    def stop(self, grace_s: float) -> None:
        """Tell all to end, and see that they do."""
        for worker in self._workers:
            worker.process.terminate()
        last = time.monotonic() + grace_s + 5
        for worker in self._workers:
            try:
                worker.process.wait(max(last - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


class Worker:
    """One process. It is given its settings through its standard input, and ends when that closes with its parent."""

    def __init__(self, settings: Settings, folder: Path, token: str = "", *, apart: bool = False) -> None:
        """token: of this machine's command line; apart: for long work (rpc/apart.py)"""
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder), "OMP_NUM_THREADS": "1"}
        self.since, self.told, self.ready = time.monotonic(), threading.Event(), False
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([dataclasses.asdict(settings), token, apart]) + "\n")
        self.process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def end(self) -> None:
        """What it does is nobody's any more; it has a moment to clear up."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def up(self) -> bool:
        return self.process.poll() is None

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            self.ready = said.readline().strip() == READY  # one that fails closes its output before it has ended
        self.told.set()


def work() -> None:
    """What a worker process does."""
    given, token, apart = json.loads(sys.stdin.readline())
    if apart:
        give_way()
    settings = Settings(**given)
    logs.set_up(settings.log_format)
    stop = stop_signal()

    def orphaned() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=orphaned, daemon=True).start()
    server = Server(settings, token, told=apart)
    if server.apart is not None:
        server.apart.start()
    print(READY, flush=True)
    stop.wait()
    end(server)


class reserved:
    """A port that is held but not listened on, so that port 0 means one port for all workers."""

    def __init__(self, address: str) -> None:
        self._host, self._port = split_address(address, "address")

    def __enter__(self) -> tuple[socket.socket, str]:
        """Raises InvalidInput (BAD_ADDRESS) where something else has the port."""
        bare = self._host.strip("[]")
        self._socket = socket.socket(socket.AF_INET6 if ":" in bare else socket.AF_INET)
        try:
            self._socket.bind((bare, self._port))  # without sharing, so that a stranger's port is found out
            port = self._socket.getsockname()[1]
            self._socket.close()
            self._socket = socket.socket(socket.AF_INET6 if ":" in bare else socket.AF_INET)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((bare, port))
        except OSError as error:
            message = f"cannot listen on {self._host}:{self._port}: {(error.strerror or str(error)).lower()}"
            raise InvalidInput(message, reason="BAD_ADDRESS", field="address") from error
        return self._socket, f"{self._host}:{port}"

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def sums(folder: Path) -> bytes:
    """The metrics of all workers as one page."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def forget(folder: Path, pid: int) -> None:
    """A worker that is gone no longer counts in what is so now; what it has counted stays."""
    for path in folder.glob(f"gauge_live*_{pid}.db"):
        path.unlink(missing_ok=True)
