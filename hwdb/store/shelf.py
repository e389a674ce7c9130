"""Shelf: calibrations that were fetched from the database, within a number of bytes, whoever's they are."""

from __future__ import annotations

import hashlib
import shutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.scratch import Scratch

BYTES_MAX = 256 * 2**20  # on disk, and in memory once their arrays are read
Key = tuple[str, str, str]  # tenant, SKU, id


class Shelf:
    """What was asked for last stays. A calibration's folder goes with the last that uses it."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._scratch, self._lock, self._bytes_max = Scratch(), threading.Lock(), bytes_max
        self._kept: OrderedDict[Key, tuple[Calibration, int]] = OrderedDict()

    def get(self, key: Key, fetch: Callable[[], Mapping[str, bytes]]) -> Calibration:
        """fetch: its files, asked where they are not there. Raises as it does, and as Calibration.open."""
        with self._lock:
            found = self._kept.pop(key, None) or self._opened(key, fetch())
            self._kept[key] = found
            while len(self._kept) > 1 and self.size_bytes() > self._bytes_max:
                self._kept.popitem(last=False)
        return found[0]

    def at_hand(self, key: Key) -> Calibration | None:
        found = self._kept.get(key)
        return found[0] if found else None

    def size_bytes(self) -> int:
        return sum(size for _, size in self._kept.values())

    def drop(self, key: Key) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def close(self) -> None:
        self._kept.clear()
        self._scratch.close()

    def _opened(self, key: Key, contents: Mapping[str, bytes]) -> tuple[Calibration, int]:
        name = hashlib.sha256("\0".join(key).encode()).hexdigest()  # no name of a tenant's choice becomes a path
        folder = self._scratch.path / name[:32]
        while folder.exists():  # somebody still uses what was dropped
            folder = folder.with_name(folder.name + "+")
        write_files(folder, contents)
        calibration = Calibration.open(folder)
        weakref.finalize(calibration, shutil.rmtree, folder, ignore_errors=True)
        return calibration, 2 * sum(map(len, contents.values()))  # on disk, and in memory once it is read


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Into a folder that is this process's alone; names are those that `check_announced` lets through."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
