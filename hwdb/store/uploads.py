"""Upload: one calibration on its way in. Its pieces lie in the database, so it goes on at any replica after any break."""

from __future__ import annotations

import hashlib
import io
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, Table, and_, delete, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import Conflict, InvalidInput, TooLarge
from tilewise.hwdb.store.announced import Announced, bad_upload, check_announced
from tilewise.hwdb.store.engine import reading, writing
from tilewise.hwdb.store.store import Store, write_files
from tilewise.hwdb.store.tables import upload_file, upload_piece

STAGED_MAX = 16  # uploads of one tenant on their way at a time
UNPACKED_MAX = 512 * 2**20  # bytes of one .npz file once unpacked


class Upload:
    """A broken connection leaves it staged, to be gone on with; nothing is visible before `finish`."""

    def __init__(
        self, store: Store, tenant: str, sku: str, id: str, sha256: str, files: Mapping[str, Announced]
    ) -> None:
        """Starts an upload, or goes on with one of the same hash. Raises as `check_announced` does, and Conflict."""
        check_announced(sku, id, sha256, files)
        self.store, self.tenant, self.sku, self.id, self.sha256 = store, tenant, sku, id, sha256
        self.files = dict(files)
        self.stored = False
        if not self._stored_by_now():
            with writing(store.engine) as connection:
                self._begin(connection)

    def received(self) -> dict[str, int]:
        """Bytes that have come of each announced file."""
        if not self.stored:
            with reading(self.store.engine) as connection:
                found = self._received(connection)
            if found or not self._stored_by_now():
                return found
        return {name: file.size_bytes for name, file in self.files.items()}

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Add a piece of a file, for good. Pieces come in order; one that was received before is passed over."""
        if path not in self.files:
            raise bad_upload(f"{path[:80]} was not announced")
        if self.stored:
            return
        with writing(self.store.engine) as connection:
            self._add(connection, path, offset, data)

    def complete(self) -> bool:
        return self.received() == {name: file.size_bytes for name, file in self.files.items()}

    def finish(self, who: str = "") -> Calibration:
        """Make the calibration visible, whole. Raises InvalidInput, and forgets the upload, where a hash is wrong."""
        if self.stored:
            return self.store.open((self.tenant,), self.sku, self.id)
        try:
            contents = self._contents()
            self._check(contents)
        except InvalidInput:
            if not self._stored_by_now():
                self.discard()
                raise
        else:
            self.store.take_in(self.tenant, self.sku, self.id, self.sha256, contents, who, self.forget)
        return self.store.open((self.tenant,), self.sku, self.id)

    def discard(self) -> None:
        """Forget what has come."""
        with writing(self.store.engine) as connection:
            self.forget(connection)

    def forget(self, connection: Connection) -> None:
        for table in (upload_piece, upload_file):
            connection.execute(delete(table).where(self._mine(table)))

    def _begin(self, connection: Connection) -> None:
        """Go on with an upload of the same hash and the same files, else start anew."""
        table, now = upload_file, int(time.time())
        found = connection.execute(select(table.c.path, table.c.size_bytes, table.c.sha256).where(self._mine(table)))
        if {path: Announced(size, sha256) for path, size, sha256 in found} == self.files:
            return
        self.forget(connection)
        others = select(table.c.content_sha256).where(table.c.tenant == self.tenant).distinct()
        if len(connection.execute(others).all()) >= STAGED_MAX:
            message = f"{STAGED_MAX} uploads are on their way already; finish one, or wait a day for it to be forgotten"
            raise TooLarge(message, reason="TOO_MANY_UPLOADS")
        own = {"tenant": self.tenant, "content_sha256": self.sha256, "received_bytes": 0, "at": now}
        rows = [
            {**own, "path": name, "size_bytes": file.size_bytes, "sha256": file.sha256}
            for name, file in self.files.items()
        ]
        if rows:
            connection.execute(insert(table), rows)

    def _add(self, connection: Connection, path: str, offset: int, data: bytes) -> None:
        have = self._received(connection).get(path)
        if have is None:
            if self._stored_by_now():
                return
            raise Conflict("the upload was begun anew by another; send it again", reason="UPLOAD_RESTARTED")
        if not 0 <= offset <= have:
            raise bad_upload(f"{path} has {have} bytes so far; a piece at {offset} leaves a gap")
        fresh = data[have - offset :]
        if have + len(fresh) > self.files[path].size_bytes:
            raise bad_upload(f"{path} was announced with {self.files[path].size_bytes} bytes; more came")
        if not fresh:
            return
        own = {"tenant": self.tenant, "content_sha256": self.sha256, "path": path}
        connection.execute(insert(upload_piece).values(**own, offset_bytes=have, content=fresh))
        changed = {"received_bytes": have + len(fresh), "at": int(time.time())}
        connection.execute(
            update(upload_file).where(self._mine(upload_file), upload_file.c.path == path).values(changed)
        )

    def _stored_by_now(self) -> bool:
        """Whether the calibration is there: an upload of the same content beside this one may have been faster."""
        self.stored = self.store.holds(self.tenant, self.sku, self.id, self.sha256)
        if self.stored:
            self.store.refresh()
        return self.stored

    def _received(self, connection: Connection) -> dict[str, int]:
        found = connection.execute(
            select(upload_file.c.path, upload_file.c.received_bytes).where(self._mine(upload_file))
        )
        return {path: have for path, have in found}

    def _contents(self) -> dict[str, bytes]:
        """The files, put together. Raises InvalidInput where one is not what was announced."""
        found = {name: bytearray() for name in self.files}
        ordered = select(upload_piece.c.path, upload_piece.c.content).where(self._mine(upload_piece))
        with reading(self.store.engine) as connection:
            for path, content in connection.execute(ordered.order_by(upload_piece.c.path, upload_piece.c.offset_bytes)):
                found[path] += content
        for name, content in found.items():
            if hashlib.sha256(content).hexdigest() != self.files[name].sha256:
                raise bad_upload(f"{name} is not what was announced: its hash differs")
        return {name: bytes(content) for name, content in found.items()}

    def _check(self, contents: Mapping[str, bytes]) -> None:
        """Raises InvalidInput where the files are another calibration than was announced, or none."""
        with tempfile.TemporaryDirectory(prefix="tilewise-upload-") as folder:
            write_files(Path(folder), contents)
            calibration = Calibration.open(folder) if "card.json" in contents else None
            if calibration is None:
                raise bad_upload("there is no card.json among the files")
            card = calibration.card
            missing = [key for key in ("id", "sku", "content_sha256") if not isinstance(card.get(key), str)]
            if missing:
                raise bad_upload(f"card.json has no {', '.join(missing)}")
            if (calibration.content_sha256(), calibration.id) != (self.sha256, self.id):
                raise bad_upload(f"the files are calibration {calibration.id[:80]}, not {self.id}")
            if card["content_sha256"] != self.sha256 or not self.id.endswith(self.sha256[:8]):
                raise bad_upload(f"the card states a hash or an id that is not its files'; {self.sha256[:8]} is")
            _ = calibration.trust, calibration.held_out_errors  # lists show them, so they must be sane
            if calibration.sku != self.sku:
                raise bad_upload(f"the card says {calibration.sku[:80]}, not {self.sku}")
        for name, content in contents.items():
            if name.endswith(".npz"):
                _check_archive(name, content)

    def _mine(self, table: Table) -> ColumnElement[bool]:
        return and_(table.c.tenant == self.tenant, table.c.content_sha256 == self.sha256)


def _check_archive(name: str, content: bytes) -> None:
    """Raises InvalidInput for an archive that would not fit into memory once unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise bad_upload(f"{name} is no archive of arrays: {error}") from error
    if unpacked > UNPACKED_MAX:
        raise bad_upload(f"{name} holds {unpacked} bytes once unpacked; at most {UNPACKED_MAX}")
