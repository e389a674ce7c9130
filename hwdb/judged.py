"""What `confined` processes do with the files of a calibration that somebody sent. Folders in, JSON out."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tilewise.hwdb.admission import check, publishable
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.compare import compare
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotFound
from tilewise.hwdb.store.announced import bad_upload
from tilewise.hwdb.texts import has_control, texts_of
from tilewise.hwdb.trial import tried

UNPACKED_MAX = 64 * 2**20  # bytes of one .npz file once unpacked; the largest of ours have 24 MB
MEMBERS_MAX = 1000


def arrived(folder: str, sku: str, id: str, sha256: str) -> None:
    """Raises InvalidInput where the files are another calibration than was announced, or none."""
    if not (Path(folder) / "card.json").is_file():
        raise bad_upload("there is no card.json among the files")
    calibration = Calibration.open(folder)
    card = calibration.card
    missing = [key for key in ("id", "sku", "content_sha256") if not isinstance(card.get(key), str)]
    if missing:
        raise bad_upload(f"card.json has no {', '.join(missing)}")
    if (calibration.content_sha256(), calibration.id) != (sha256, id):
        raise bad_upload(f"the files are calibration {calibration.id[:80]}, not {id}")
    if card["content_sha256"] != sha256 or not id.endswith(sha256[:8]):
        raise bad_upload(f"the card states a hash or an id that is not its files'; {sha256[:8]} is")
    if calibration.sku != sku:
        raise bad_upload(f"the card says {calibration.sku[:80]}, not {sku}")
    if any(map(has_control, texts_of(card))):
        raise bad_upload("card.json holds a character that cannot be printed")
    _ = calibration.trust, calibration.held_out_errors, calibration.families()  # lists show them, so they must be sane
    for path in sorted(Path(folder).rglob("*.npz")):
        _check_archive(path)


def judged(database: str, sku: str, folder: str, active: str) -> dict[str, Any]:
    """Findings on a calibration, and how it differs from the active one's folder ("": none), where it may be published."""
    calibration = Calibration.open(folder)
    found = check(calibration, Database(Path(database)).sku(sku))
    answer: dict[str, Any] = {"findings": [asdict(each) for each in found], "changes": [], "not_compared": ""}
    if active and publishable(found):
        try:
            changes = compare(Calibration.open(active), calibration)
            answer["changes"] = [[each.family, each.ratio, each.low, each.high, each.points] for each in changes]
        except NotFound as error:
            answer["not_compared"] = error.message
    return answer


def trial(database: str, sku: str, folder: str) -> None:
    """Raises NotAvailable (BAD_CALIBRATION) where it does not answer."""
    tried(Calibration.open(folder), Database(Path(database)).sku(sku))


def _check_archive(path: Path) -> None:
    """Raises InvalidInput for an archive that would not fit into memory once unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise bad_upload(f"{path.name} is no archive of arrays: {error}") from error
    unpacked = sum(member.file_size for member in members)
    if unpacked > UNPACKED_MAX or len(members) > MEMBERS_MAX:
        raise bad_upload(
            f"{path.name} holds {len(members)} arrays of {unpacked} bytes; at most {MEMBERS_MAX} and {UNPACKED_MAX}"
        )
