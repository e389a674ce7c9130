"""Upload: one calibration on its way in. Its pieces lie in the database, so it goes on at any replica after any break."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping

from sqlalchemy import Connection, Table, and_, delete, func, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.confined import confined, waiting
from tilewise.hwdb.errors import Conflict, InvalidInput, TooLarge
from tilewise.hwdb.scratch import Scratch
from tilewise.hwdb.store.announced import Announced, bad_upload, check_announced
from tilewise.hwdb.store.engine import reading, writing
from tilewise.hwdb.store.shelf import write_files
from tilewise.hwdb.store.store import Store
from tilewise.hwdb.store.tables import calibration as known
from tilewise.hwdb.store.tables import upload_file, upload_piece

STAGED_MAX = 16  # uploads of one tenant on their way at a time
STAGED_OF_CALLER = 4  # so that none takes all of them
EMPTY_S = 600  # one of which nothing has come is forgotten by then
PIECES, PIECE_BYTES = 64, 2**16  # so many pieces of a file may be small: a row of one byte takes two hundred
COUNTED_MIN = 2**20  # bytes that every calibration counts for at least: each is a row that all look at


class Upload:
    """A broken connection leaves it staged, to be gone on with; nothing is visible before `finish`."""

    def __init__(
        self, store: Store, tenant: str, sku: str, id: str, sha256: str, files: Mapping[str, Announced], who: str = ""
    ) -> None:
        """Starts an upload, or goes on with one of the same hash. Raises as `check_announced` and `_check_room` do, and Conflict."""
        check_announced(sku, id, sha256, files)
        self.store, self.tenant, self.sku, self.id, self.sha256, self.who = store, tenant, sku, id, sha256, who
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

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def finish(self, alive: Callable[[], None] = waiting) -> Calibration:
        """Make the calibration visible, whole. Raises InvalidInput, and forgets the upload, where a hash is wrong.

        alive: is called while the files are checked; what it raises ends that
        """
        with self.store.finishing:  # one at a time: it is in memory, whole
            return self._finish(alive)

    def _finish(self, alive: Callable[[], None]) -> Calibration:
        if self.stored:
            return self.store.open((self.tenant,), self.sku, self.id)
        try:
            contents = self._contents()
            self._check(contents, alive)
        except (InvalidInput, TooLarge):
            if not self._stored_by_now():
                self.discard()
                raise
        else:
            self.store.take_in(self.tenant, self.sku, self.id, self.sha256, contents, self.who, self.forget)
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
        self._check_room(connection)
        own = {
            "tenant": self.tenant,
            "content_sha256": self.sha256,
            "who": self.who,
            "received_bytes": 0,
            "at": now,
        }
        rows = [
            {**own, "path": name, "size_bytes": file.size_bytes, "sha256": file.sha256}
            for name, file in self.files.items()
        ]
        if rows:
            connection.execute(insert(table), rows)

    def _check_room(self, connection: Connection) -> None:
        """Raises TooLarge (TOO_MANY_UPLOADS, QUOTA_EXCEEDED) where the tenant, or the caller, has no room for one more."""
        table = upload_file.c
        self.store.forget_uploads(connection, EMPTY_S, empty=True)
        staged = select(table.content_sha256, func.min(table.who), func.sum(table.size_bytes))
        others = connection.execute(staged.where(table.tenant == self.tenant).group_by(table.content_sha256)).all()
        mine = sum(who == self.who for _, who, _ in others)
        if len(others) >= STAGED_MAX or mine >= STAGED_OF_CALLER:
            message = (
                f"{mine} uploads of {self.who or 'this caller'} and {len(others)} of the tenant are on their way already; at most "
                f"{STAGED_OF_CALLER} and {STAGED_MAX}: finish one, or wait a day for it to be forgotten"
            )
            raise TooLarge(message, reason="TOO_MANY_UPLOADS")
        kept = connection.execute(select(known.c.size_bytes).where(known.c.tenant == self.tenant)).scalars()
        used = sum(max(size, COUNTED_MIN) for size in (*kept, *(int(size) for _, _, size in others)))
        if used + max(self.size_bytes, COUNTED_MIN) > self.store.quota_bytes:
            message = (
                f"the tenant's calibrations have {used >> 20} MiB, this one {self.size_bytes >> 20}; at most "
                f"{self.store.quota_bytes >> 20}: delete some (deleted ones count for a month)"
            )
            raise TooLarge(message, reason="QUOTA_EXCEEDED")

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
        self._check_pieces(connection, path, have)
        own = {"tenant": self.tenant, "content_sha256": self.sha256, "path": path}
        connection.execute(insert(upload_piece).values(**own, offset_bytes=have, content=fresh))
        changed = {"received_bytes": have + len(fresh), "at": int(time.time())}
        connection.execute(
            update(upload_file).where(self._mine(upload_file), upload_file.c.path == path).values(changed)
        )

    def _check_pieces(self, connection: Connection, path: str, have: int) -> None:
        mine = and_(self._mine(upload_piece), upload_piece.c.path == path)
        pieces = connection.execute(select(func.count()).select_from(upload_piece).where(mine)).scalar_one()
        if pieces >= PIECES + have // PIECE_BYTES:
            raise bad_upload(f"{path} came in {pieces} pieces of {have} bytes together; send {PIECE_BYTES} in one")

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

    def _check(self, contents: Mapping[str, bytes], alive: Callable[[], None]) -> None:
        """Raises InvalidInput where the files are another calibration than was announced, or none."""
        with Scratch() as scratch:
            write_files(scratch.path, contents)
            confined("tilewise.hwdb.judged:arrived", str(scratch.path), self.sku, self.id, self.sha256, alive=alive)

    def _mine(self, table: Table) -> ColumnElement[bool]:
        return and_(table.c.tenant == self.tenant, table.c.content_sha256 == self.sha256)
