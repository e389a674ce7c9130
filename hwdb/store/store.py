"""Store: the calibrations that a server was given, by tenant; which one answers; who decided so."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, and_, delete, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import Conflict, NotAvailable, NotFound
from tilewise.hwdb.store import tables
from tilewise.hwdb.store.engine import open_engine, reading, writing

STALE_S = 24 * 3600
SHARED = ""  # the tenant whose calibrations everybody sees


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What every question needs to know, in memory. Keys are (tenant, sku)."""

    revision: int = -1
    ids: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    active: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the audit log. action: "upload", "publish" or "rollback"; at: seconds since 1970."""

    number: int
    at: int
    who: str
    action: str
    id: str
    before: str
    reason: str


class Store:
    """A database of calibrations. Questions are answered from a snapshot; `refresh` sees what other processes did."""

    def __init__(self, where: str | Path) -> None:
        """where: a folder, or a postgresql:// URL. Raises as `open_engine` does."""
        self.engine = open_engine(str(where))
        self._files = tempfile.TemporaryDirectory(prefix="tilewise-store-")
        self._lock = threading.Lock()
        self.snapshot = Snapshot()
        self.sweep()
        self.refresh()

    def close(self) -> None:
        self.engine.dispose()
        self._files.cleanup()

    def refresh(self) -> bool:
        """Whether something changed since the last look. Raises Unavailable; the snapshot then stays."""
        with reading(self.engine) as connection:
            # The number first: what comes in while the rest is read is seen again at the next look.
            number = connection.execute(select(tables.revision.c.number)).scalar_one()
            if number == self.snapshot.revision:
                return False
            known, pointers = tables.calibration, tables.active
            ids: dict[tuple[str, str], list[str]] = {}
            for tenant, sku, id in connection.execute(select(known.c.tenant, known.c.sku, known.c.id)):
                ids.setdefault((tenant, sku), []).append(id)
            found = connection.execute(select(pointers.c.tenant, pointers.c.sku, pointers.c.id))
            active = {(tenant, sku): id for tenant, sku, id in found}
        self.snapshot = Snapshot(number, {key: tuple(sorted(each)) for key, each in ids.items()}, active)
        return True

    def ids(self, tenants: Sequence[str], sku: str) -> tuple[str, ...]:
        """Ids of a SKU's calibrations that tenants have, oldest first."""
        found = (self.snapshot.ids.get((tenant, sku), ()) for tenant in tenants)
        return tuple(sorted({id for ids in found for id in ids}))

    def active(self, tenants: Sequence[str], sku: str) -> str | None:
        """Id of the calibration that answers for a SKU: that of the first of the tenants who has one."""
        found = (self.snapshot.active.get((tenant, sku)) for tenant in tenants)
        return next((id for id in found if id), None)

    def open(self, tenants: Sequence[str], sku: str, id: str) -> Calibration:
        """Raises NotFound (CALIBRATION_NOT_FOUND), listing what these tenants have."""
        for tenant in tenants:
            if id in self.snapshot.ids.get((tenant, sku), ()):
                return Calibration.open(self._folder(tenant, sku, id))
        known = ", ".join(self.ids(tenants, sku)) or "none"
        message = f"{sku} has no calibration {id[:80]!r}; it has {known}"
        raise NotFound(message, reason="CALIBRATION_NOT_FOUND", field="name", gpu=sku)

    def holds(self, tenant: str, sku: str, id: str, sha256: str) -> bool:
        """Whether a tenant has this very calibration. Raises Conflict where it has another of that id."""
        table = tables.calibration
        with reading(self.engine) as connection:
            one = select(table.c.content_sha256).where(_of(table.c, tenant, sku), table.c.id == id)
            found = connection.execute(one).scalar_one_or_none()
        if found not in (None, sha256):
            raise Conflict(f"{id} is there with other content; calibrations never change", reason="IMMUTABLE")
        return found is not None

    def take_in(
        self, tenant: str, sku: str, id: str, sha256: str, contents: Mapping[str, bytes], who: str,
        forget: Callable[[Connection], None],
    ) -> None:  # fmt: skip
        """A calibration from its files, in one transaction with `forget`, which drops the pieces that they came in."""
        own = {"tenant": tenant, "sku": sku, "id": id}
        with writing(self.engine) as connection:
            if not self.holds(tenant, sku, id, sha256):
                row = {**own, "content_sha256": sha256, "who": who, "at": int(time.time())}
                connection.execute(insert(tables.calibration).values(row))
                rows = [{**own, "path": path, "content": content} for path, content in contents.items()]
                connection.execute(insert(tables.calibration_file), rows)
                self._record(connection, who, "upload", "", before="", **own)
            forget(connection)
        self.refresh()

    def publish(
        self, tenant: str, sku: str, id: str, who: str = "", reason: str = "", expected_active: str | None = None,
        action: str = "publish",
    ) -> str | None:  # fmt: skip
        """Make a calibration the one that answers a tenant; returns the id of the one before. Check it first
        (hwdb.admission).

        Raises NotFound, NotAvailable for a non-production one, and Conflict where another than `expected_active` answers.
        """
        self.refresh()
        if not self.open((tenant, SHARED), sku, id).production:
            raise NotAvailable(f"{id} was not taken on a production GPU; it never answers", reason="NOT_PRODUCTION")
        pointers = tables.active
        with writing(self.engine) as connection:
            mine = _of(pointers.c, tenant, sku)
            before: str | None = connection.execute(select(pointers.c.id).where(mine)).scalar_one_or_none()
            if expected_active is not None and (before or "") != expected_active:
                raise Conflict(f"{before or 'none'} is active, not {expected_active[:80]}", reason="ACTIVE_CHANGED")
            connection.execute(delete(pointers).where(mine))
            connection.execute(insert(pointers).values(tenant=tenant, sku=sku, id=id))
            own = {"tenant": tenant, "sku": sku, "id": id, "before": before or ""}
            self._record(connection, who, action, reason, **own)
        self.refresh()
        return before

    def rollback(
        self, tenant: str, sku: str, id: str | None = None, who: str = "", reason: str = ""
    ) -> tuple[str, str]:
        """Make an earlier calibration answer again: the one before, or `id`, which must have been active once.

        Returns (id now, id before).
        """
        self.refresh()
        now = self.active((tenant,), sku)
        earlier = [entry.id for entry in self.history(tenant, sku) if entry.action != "upload" and entry.id != now]
        if now is None or not earlier:
            raise NotAvailable(f"{sku} has no earlier calibration to go back to", reason="NOTHING_TO_ROLL_BACK")
        if id is not None and id not in earlier:
            message = f"{id[:80]} was never active; {', '.join(sorted(set(earlier)))} were"
            raise NotFound(message, reason="NEVER_ACTIVE", field="id")
        chosen = id or earlier[-1]
        self.publish(tenant, sku, chosen, who, reason, expected_active=now, action="rollback")
        return chosen, now

    def history(self, tenant: str, sku: str) -> list[Entry]:
        """The audit log of a tenant's calibrations of a SKU, oldest first."""
        log = tables.audit.c
        columns = (log.number, log.at, log.who, log.action, log.id, log.before, log.reason)
        with reading(self.engine) as connection:
            found = connection.execute(select(*columns).where(_of(log, tenant, sku)).order_by(log.number))
            return [Entry(*row) for row in found]

    def sweep(self, older_than_s: float = STALE_S) -> None:
        """Forget uploads that nobody has gone on with."""
        files, pieces = tables.upload_file, tables.upload_piece
        with writing(self.engine) as connection:
            fresh = select(files.c.tenant, files.c.content_sha256).where(files.c.at >= time.time() - older_than_s)
            kept = {tuple(row) for row in connection.execute(fresh)}
            every = connection.execute(select(files.c.tenant, files.c.content_sha256).distinct())
            for tenant, sha256 in {tuple(row) for row in every} - kept:
                for table in (pieces, files):
                    old = and_(table.c.tenant == tenant, table.c.content_sha256 == sha256)
                    connection.execute(delete(table).where(old))

    def _record(self, connection: Connection, who: str, action: str, why: str, **own: str) -> None:
        """Add to the audit log, and let every process see that something changed."""
        number = tables.revision.c.number
        connection.execute(update(tables.revision).values(number=number + 1))
        now = connection.execute(select(number)).scalar_one()
        entry = {"number": now, "at": int(time.time()), "who": who, "action": action, "reason": why, **own}
        connection.execute(insert(tables.audit).values(entry))

    def _folder(self, tenant: str, sku: str, id: str) -> Path:
        """A calibration's files on this machine's disk, fetched when first asked for."""
        folder = Path(self._files.name) / (tenant or "shared") / sku / id
        with self._lock:
            if not folder.is_dir():
                table = tables.calibration_file
                with reading(self.engine) as connection:
                    every = select(table.c.path, table.c.content).where(_of(table.c, tenant, sku), table.c.id == id)
                    contents = {path: bytes(content) for path, content in connection.execute(every)}
                folder.parent.mkdir(parents=True, exist_ok=True)
                draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".draft-"))
                write_files(draft, contents)
                os.replace(draft, folder)
        return folder


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _of(columns: object, tenant: str, sku: str) -> ColumnElement[bool]:
    """The rows of a tenant's SKU in a table of these columns."""
    return and_(columns.tenant == tenant, columns.sku == sku)  # type: ignore[attr-defined]
