"""A server in a process of its own: one of several behind a port (workers.py), or the one for long work (rpc/apart.py)."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tilewise.server.service.settings import Settings

COMMAND = (sys.executable, "-c", "from tilewise.server.service.workers import work; work()")
READY = "ready"
END_S = 2.0


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
