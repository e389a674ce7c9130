"""Temporary folders that outlive no process: what a killed one left is removed by the next that needs one."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Self

try:
    import fcntl
except ImportError:  # Windows: nothing is known of others' folders, so none is removed
    fcntl = None  # type: ignore[assignment]

PREFIX = "tilewise-"
LOCK = ".lock"


class Scratch:
    """path: a folder of this process alone. A lock beside it, which the system drops with the process, says that it is in use."""

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        sweep(base)
        while True:
            self.path = base / f"{PREFIX}{secrets.token_hex(8)}"
            self._lock = os.open(self.path.with_suffix(LOCK), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            if _locked(self._lock):
                break
            os.close(self._lock)  # a sweep was faster, and removes it
        self.path.mkdir(mode=0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.with_suffix(LOCK).unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(base: Path) -> None:
    """Remove the folders of this user's processes that are gone."""
    for lock in base.glob(f"{PREFIX}*{LOCK}"):
        try:
            handle = os.open(lock, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        except OSError:  # another user's, or gone by now
            continue
        if fcntl is not None and os.fstat(handle).st_uid == os.getuid() and _locked(handle):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
        os.close(handle)


def _locked(handle: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
