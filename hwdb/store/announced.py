"""What an upload announces, and what of it is refused before a byte has come."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewise.hwdb.admission import BYTES_MAX, FILES
from tilewise.hwdb.errors import InvalidInput, TooLarge
from tilewise.hwdb.record import Record

FILE_BYTES_MAX = 256 * 2**20
FILES_MAX = 200
CARD_BYTES_MAX = 2**20  # and of plain numbers of a model; the largest of ours have 10 kB
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,80}")
SHA256 = re.compile(r"[0-9a-f]{64}")


class Announced(Record):
    """A file that an upload will bring."""

    size_bytes: int
    sha256: str


def check_announced(sku: str, id: str, sha256: str, files: Mapping[str, Announced]) -> None:
    """Raises InvalidInput (BAD_UPLOAD) for what no calibration has, and TooLarge (UPLOAD_TOO_LARGE)."""
    if not (NAME.fullmatch(sku) and NAME.fullmatch(id) and SHA256.fullmatch(sha256)):
        raise bad_upload(f"no calibration is called {sku[:80]}/{id[:80]} with the hash {sha256[:80]}")
    if len(files) > FILES_MAX:
        raise TooLarge(f"{len(files)} files; at most {FILES_MAX}", reason="UPLOAD_TOO_LARGE")
    for name, file in files.items():
        if not FILES.fullmatch(name):
            raise bad_upload(f"{name[:80]!r} is no file of a calibration")
        most = CARD_BYTES_MAX if name.endswith(".json") else FILE_BYTES_MAX
        if not 0 <= file.size_bytes <= most:
            raise TooLarge(f"{name} has {file.size_bytes} bytes; at most {most}", reason="UPLOAD_TOO_LARGE")
    whole = sum(file.size_bytes for file in files.values())
    if whole > BYTES_MAX:
        raise TooLarge(f"the files have {whole} bytes; at most {BYTES_MAX}", reason="UPLOAD_TOO_LARGE")


def bad_upload(message: str) -> InvalidInput:
    return InvalidInput(message, reason="BAD_UPLOAD")
