"""A folder of calibrations that a server may add to: staged uploads, an active pointer a SKU, and a way back.

    <root>/<sku>/<id>/          calibrations, complete or not there at all
    <root>/<sku>/active         id of the one that answers
    <root>/<sku>/history.jsonl  who made which one active, when and why
    <root>/.staging/<sha256>/   uploads on their way; the server never reads them

Every change is a rename on one file system, preceded by fsync, so that a kill at any moment leaves the old state or the
new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.hwdb.admission import FILES
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import Conflict, InvalidInput, NotAvailable, NotFound, TooLarge

STAGING = ".staging"
STALE_S = 24 * 3600
FILE_BYTES_MAX = 256 * 2**20
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,80}")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Announced:
    """A file that an upload will bring."""

    size_bytes: int
    sha256: str


class Upload:
    """One calibration on its way in. A broken connection leaves it staged, to be gone on with; nothing is visible."""

    def __init__(self, store: Store, sku: str, id: str, sha256: str, files: Mapping[str, Announced]) -> None:
        self.store, self.sku, self.id, self.sha256 = store, sku, id, sha256
        self.files = dict(files)
        self.folder = store.root / STAGING / sha256
        self.folder.mkdir(parents=True, exist_ok=True)

    def received(self) -> dict[str, int]:
        """Bytes that have come of each announced file."""
        return {name: _size(self.folder / name) for name in self.files}

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Add a piece of a file. Pieces come in order; one that was received before is passed over."""
        if path not in self.files:
            raise _bad(f"{path} was not announced")
        have = _size(self.folder / path)
        if offset > have:
            raise _bad(f"{path} has {have} bytes so far; a piece at {offset} leaves a gap")
        fresh = data[have - offset :]
        if have + len(fresh) > self.files[path].size_bytes:
            raise _bad(f"{path} was announced with {self.files[path].size_bytes} bytes; more came")
        if fresh:
            (self.folder / path).parent.mkdir(exist_ok=True)
            with (self.folder / path).open("ab") as stream:
                stream.write(fresh)

    def complete(self) -> bool:
        return all(self.received()[name] == file.size_bytes for name, file in self.files.items())

    def finish(self) -> Calibration:
        """Make the calibration visible, whole. Raises InvalidInput, and forgets the upload, where a hash is wrong."""
        try:
            for name, file in self.files.items():
                (self.folder / name).parent.mkdir(exist_ok=True)
                (self.folder / name).touch()
                if hashlib.sha256((self.folder / name).read_bytes()).hexdigest() != file.sha256:
                    raise _bad(f"{name} is not what was announced: its hash differs")
            calibration = Calibration.open(self.folder)
            if (calibration.content_sha256(), calibration.id) != (self.sha256, self.id):
                raise _bad(f"the files are calibration {calibration.id}, not {self.id}")
            if calibration.sku != self.sku:
                raise _bad(f"the card says {calibration.sku}, not {self.sku}")
        except InvalidInput:
            self.discard()
            raise
        for name in self.files:
            _sync(self.folder / name)
        return self.store._take_in(self)

    def discard(self) -> None:
        """Forget what has come."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Store:
    """The calibrations of a server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.sweep()

    def begin(self, sku: str, id: str, sha256: str, files: Mapping[str, Announced]) -> Upload:
        """Start an upload, or go on with one of the same hash. Raises InvalidInput for names no calibration has."""
        if not (NAME.fullmatch(sku) and NAME.fullmatch(id) and SHA256.fullmatch(sha256)):
            raise _bad(f"no calibration is called {sku}/{id} with the hash {sha256[:80]}")
        for name, file in files.items():
            if not FILES.fullmatch(name):
                raise _bad(f"{name[:80]!r} is no file of a calibration")
            if not 0 <= file.size_bytes <= FILE_BYTES_MAX:
                raise TooLarge(
                    f"{name} has {file.size_bytes} bytes; at most {FILE_BYTES_MAX}", reason="UPLOAD_TOO_LARGE"
                )
        return Upload(self, sku, id, sha256, files)

    def ids(self, sku: str) -> tuple[str, ...]:
        """Ids of a SKU's calibrations, oldest first."""
        return tuple(sorted(card.parent.name for card in (self.root / sku).glob("*/card.json")))

    def open(self, sku: str, id: str) -> Calibration:
        """Raises NotFound (CALIBRATION_NOT_FOUND), listing what there is."""
        if id not in self.ids(sku):
            known = ", ".join(self.ids(sku)) or "none"
            raise NotFound(
                f"{sku} has no calibration {id}; it has {known}", reason="CALIBRATION_NOT_FOUND", field="name"
            )
        return Calibration.open(self.root / sku / id)

    def active(self, sku: str) -> str | None:
        """Id of the calibration that answers for a SKU, None where none does."""
        pointer = self.root / sku / "active"
        return pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else None

    def history(self, sku: str) -> list[dict[str, Any]]:
        """Every change of the active calibration, oldest first."""
        path = self.root / sku / "history.jsonl"
        if not path.is_file():
            return []
        whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in whole]

    def publish(
        self, sku: str, id: str, who: str = "", reason: str = "", expected_active: str | None = None
    ) -> str | None:
        """Make a calibration the one that answers; returns the id of the one before. Check it first (hwdb.admission).

        Raises NotAvailable for a non-production one, and Conflict where another than `expected_active` answers.
        """
        calibration, before = self.open(sku, id), self.active(sku)
        if not calibration.production:
            raise NotAvailable(f"{id} was not taken on a production GPU; it never answers", reason="NOT_PRODUCTION")
        if expected_active is not None and (before or "") != expected_active:
            raise Conflict(f"{before or 'none'} is active, not {expected_active}", reason="ACTIVE_CHANGED")
        entry = {"at": int(time.time()), "id": id, "before": before, "who": who, "reason": reason}
        with (self.root / sku / "history.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        _replace(self.root / sku / "active", id + "\n")
        return before

    def rollback(self, sku: str, id: str | None = None, who: str = "", reason: str = "") -> tuple[str, str]:
        """Make an earlier calibration answer again: the one before, or `id`, which must have been active once.

        Returns (id now, id before).
        """
        now = self.active(sku)
        earlier = [entry["id"] for entry in self.history(sku) if entry["id"] != now]
        if now is None or not earlier:
            raise NotAvailable(f"{sku} has no earlier calibration to go back to", reason="NOTHING_TO_ROLL_BACK")
        if id is not None and id not in earlier:
            raise NotFound(f"{id} was never active; {', '.join(sorted(set(earlier)))} were", reason="NEVER_ACTIVE")
        chosen = id or earlier[-1]
        self.publish(sku, chosen, who, reason or "rollback")
        return chosen, now

    def sweep(self, older_than_s: float = STALE_S) -> None:
        """Forget uploads that nobody has gone on with."""
        for folder in (self.root / STAGING).glob("*"):
            if time.time() - folder.stat().st_mtime > older_than_s:
                shutil.rmtree(folder, ignore_errors=True)

    def _take_in(self, upload: Upload) -> Calibration:
        place = self.root / upload.sku / upload.id
        place.parent.mkdir(exist_ok=True)
        if place.exists():  # the same content came before: uploading again changes nothing
            upload.discard()
        else:
            os.replace(upload.folder, place)
            _sync(place.parent)
        return Calibration.open(place)


def _bad(message: str) -> InvalidInput:
    return InvalidInput(message, reason="BAD_UPLOAD")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(fresh, path)
    _sync(path.parent)
