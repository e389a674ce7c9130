"""Work over files that strangers wrote, in a process of its own: with limits on its CPU time and memory, and killed when nobody waits.

A parser that is fed a bomb, or a model that computes for ever, so takes that process and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewise.hwdb import errors
from tilewise.hwdb.errors import TilewiseError, TooLarge, Unavailable

# Of address space; reading the largest calibration of ours takes 1 GiB, numpy's libraries included
MEMORY_BYTES = 3 * 2**30
CPU_S = 60  # checking the largest calibration of ours takes 5
WAIT_S = 600  # of a machine that others use as well
AT_ONCE = 2  # of one server
LOOK_S = 0.02
COMMAND = (sys.executable, "-c", "from tilewise.hwdb.confined import answer; answer()")
KEPT = ("PATH", "PYTHONPATH", "LANG", "SYSTEMROOT")  # of the environment: no password gets there
_places = threading.BoundedSemaphore(AT_ONCE)


def waiting() -> None:
    """Somebody waits for ever."""


def confined(function: str, *arguments: str, alive: Callable[[], None] = waiting) -> Any:
    """What "module:function" answers to these arguments, as JSON carries it.

    alive: is called every few milliseconds; when it raises, the process is killed
    Raises the TilewiseError that the function raised, TooLarge (TOO_COSTLY) where it needs more than the limits, and Unavailable
    (CHECK_DELAYED) where the machine does not come to it.
    """
    while not _places.acquire(timeout=LOOK_S):
        alive()
    try:
        return _asked(json.dumps([function, *arguments]), alive)
    finally:
        _places.release()


def _asked(question: str, alive: Callable[[], None]) -> Any:
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    last = time.monotonic() + WAIT_S
    unsent: str | None = question
    try:
        while True:
            try:
                answered, _ = process.communicate(unsent, timeout=LOOK_S)
                return _meant(answered)
            except subprocess.TimeoutExpired:
                unsent = None  # communicate keeps it
                alive()
                if time.monotonic() > last:
                    message = f"the machine is too busy to check the files within {WAIT_S} s; try again"
                    raise Unavailable(message, reason="CHECK_DELAYED") from None
    finally:
        process.kill()
        process.communicate()


def _meant(answered: str) -> Any:
    if not answered:
        message = f"the files cannot be checked within {CPU_S} s and {MEMORY_BYTES / 2**30:g} GiB"
        raise TooLarge(message, reason="TOO_COSTLY")
    found = json.loads(answered)
    if "error" not in found:
        return found["answer"]
    kind, message, reason, field, metadata = found["error"]
    error: TilewiseError = getattr(errors, kind)(message, reason=reason, field=field)
    error.metadata = metadata
    raise error


def answer() -> None:
    """What the process does."""
    question = sys.stdin.read()
    _limit()
    function, *arguments = json.loads(question)
    module, _, name = function.partition(":")
    try:
        found = {"answer": getattr(import_module(module), name)(*arguments)}
    except TilewiseError as error:
        found = {"error": [type(error).__name__, error.message, error.reason, error.field, error.metadata]}
    except MemoryError:
        return
    print(json.dumps(found))


def go_first() -> None:
    """Where the machine has no memory left, the kernel ends this process and not the one that answers."""
    with suppress(OSError):  # no Linux
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")


def _limit() -> None:
    go_first()
    try:
        import resource
    except ImportError:  # Windows: the parent's clock alone
        return
    for kind, most in (("RLIMIT_AS", MEMORY_BYTES), ("RLIMIT_CPU", CPU_S), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)):
        resource.setrlimit(getattr(resource, kind), (most, most))
