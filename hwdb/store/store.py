"""Store: the calibrations that a server was given, by tenant; which one answers; who decided so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, func, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import Conflict, NotAvailable, NotFound
from tilewise.hwdb.record import Record
from tilewise.hwdb.store import tables
from tilewise.hwdb.store.engine import open_engine, reading, writing
from tilewise.hwdb.store.shelf import Shelf

DAY_S = 24 * 3600
STALE_S = DAY_S  # an upload that nobody goes on with
DELETED_S = 30 * DAY_S  # until a deleted calibration's files are gone for good
CANDIDATE_S = 180 * DAY_S  # until one that never answered is deleted
QUOTA_BYTES = 2**30  # of one tenant
SHARED = ""  # the tenant whose calibrations everybody sees


class Snapshot(Record):
    """What every question needs to know, in memory. Keys are (tenant, sku)."""

    revision: int = -1
    ids: Mapping[tuple[str, str], tuple[str, ...]] = {}
    active: Mapping[tuple[str, str], str] = {}


class Entry(Record):
    """One line of the audit log. action: "upload", "publish", "rollback", "delete" or "expire"; at: seconds since 1970."""

    number: int
    at: int
    who: str
    action: str
    id: str
    before: str
    reason: str


class Store:
    """A database of calibrations. Questions are answered from a snapshot; `refresh` sees what other processes did."""

    def __init__(self, where: str | Path, quota_bytes: int = QUOTA_BYTES, password: str = "") -> None:
        """where: a folder, or a postgresql:// URL; quota_bytes: what one tenant may keep; password: of the database,
        where the URL has none. Raises as `open_engine` does."""
        self.engine, self.quota_bytes = open_engine(str(where), password), quota_bytes
        self.shelf, self.finishing = Shelf(), threading.Lock()
        self.snapshot = Snapshot()
        self.sweep()
        self.refresh()

    def close(self) -> None:
        self.engine.dispose()
        self.shelf.close()

    def refresh(self) -> bool:
        """Whether something changed since the last look. Raises Unavailable; the snapshot then stays."""
        with reading(self.engine) as connection:
            # The number first: what comes in while the rest is read is seen again at the next look.
            number = connection.execute(select(tables.revision.c.number)).scalar_one()
            if number == self.snapshot.revision:
                return False
            known, pointers = tables.calibration, tables.active
            ids: dict[tuple[str, str], list[str]] = {}
            there = select(known.c.tenant, known.c.sku, known.c.id).where(known.c.deleted_at == 0)
            for tenant, sku, id in connection.execute(there):
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
                return self.shelf.get((tenant, sku, id), partial(self._contents, tenant, sku, id))
        raise self._unknown(tenants, sku, id)

    def card(self, tenants: Sequence[str], sku: str, id: str) -> Calibration:
        """As `open`, but without the other files, of which a list would fetch hundreds."""
        of = next((tenant for tenant in tenants if id in self.snapshot.ids.get((tenant, sku), ())), "")
        at_hand = self.shelf.at_hand((of, sku, id))
        if at_hand is not None:
            return at_hand
        table = tables.calibration_file
        one = and_(_of(table.c, of, sku), table.c.id == id, table.c.path == "card.json")
        with reading(self.engine) as connection:
            found = connection.execute(select(table.c.content).where(one)).scalar_one_or_none()
        if found is None:
            raise self._unknown(tenants, sku, id)
        return Calibration(Path(), bytes(found).decode(errors="replace"))

    def holds(self, tenant: str, sku: str, id: str, sha256: str) -> bool:
        """Whether a tenant has this very calibration. Raises Conflict where it has another of that id."""
        table = tables.calibration
        with reading(self.engine) as connection:
            one = select(table.c.content_sha256, table.c.deleted_at).where(_of(table.c, tenant, sku), table.c.id == id)
            found, deleted_at = connection.execute(one).one_or_none() or (None, 0)
        if found not in (None, sha256):
            raise Conflict(f"{id} is there with other content; calibrations never change", reason="IMMUTABLE")
        return found is not None and not deleted_at

    def take_in(
        self, tenant: str, sku: str, id: str, sha256: str, contents: Mapping[str, bytes], who: str,
        forget: Callable[[Connection], None],
    ) -> None:  # fmt: skip
        """A calibration from its files, in one transaction with `forget`, which drops the pieces that they came in."""
        own = {"tenant": tenant, "sku": sku, "id": id}
        with writing(self.engine) as connection:
            if not self.holds(tenant, sku, id, sha256):
                self._purge(connection, **own)  # it may have been deleted
                row = {**own, "content_sha256": sha256, "who": who, "at": int(time.time()), "deleted_at": 0}
                row["size_bytes"] = sum(map(len, contents.values()))
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
            self._check_there(connection, (tenant, SHARED), sku, id)
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
        there = {*self.ids((tenant, SHARED), sku)} - {now}
        moves = ("publish", "rollback")
        earlier = [entry.id for entry in self.history(tenant, sku) if entry.action in moves and entry.id in there]
        if now is None or not earlier:
            raise NotAvailable(f"{sku} has no earlier calibration to go back to", reason="NOTHING_TO_ROLL_BACK")
        if id is not None and id not in earlier:
            message = f"{id[:80]} was never active; {', '.join(sorted(set(earlier)))} were"
            raise NotFound(message, reason="NEVER_ACTIVE", field="id")
        chosen = id or earlier[-1]
        self.publish(tenant, sku, chosen, who, reason, expected_active=now, action="rollback")
        return chosen, now

    def delete(self, tenant: str, sku: str, id: str, who: str = "", reason: str = "") -> None:
        """Take a tenant's own calibration away. Nobody sees it any more; its files go DELETED_S later, and sent again it is back.

        Raises NotFound, and NotAvailable (CALIBRATION_ACTIVE) where it answers somebody.
        """
        with writing(self.engine) as connection:
            self._check_there(connection, (tenant,), sku, id)
            if self._answers(connection, tenant, sku, id):
                message = f"{id} answers; publish another one or roll back before you delete it"
                raise NotAvailable(message, reason="CALIBRATION_ACTIVE", field="name")
            self._take_away(connection, tenant, sku, id, who, "delete", reason)
        self.refresh()
        self.shelf.drop((tenant, sku, id))

    def _take_away(
        self, connection: Connection, tenant: str, sku: str, id: str, who: str, action: str, reason: str
    ) -> None:
        table = tables.calibration
        one = and_(_of(table.c, tenant, sku), table.c.id == id)
        connection.execute(update(table).where(one).values(deleted_at=int(time.time())))
        self._record(connection, who, action, reason, tenant=tenant, sku=sku, id=id, before="")

    def _check_there(self, connection: Connection, tenants: Sequence[str], sku: str, id: str) -> None:
        """Raises NotFound, as `open` does, where it is not, or was deleted a moment ago."""
        table = tables.calibration.c
        one = and_(table.tenant.in_(tenants), table.sku == sku, table.id == id, table.deleted_at == 0)
        if not connection.execute(select(func.count()).select_from(tables.calibration).where(one)).scalar_one():
            raise self._unknown(tenants, sku, id)

    def _answers(self, connection: Connection, tenant: str, sku: str, id: str) -> bool:
        """Whether it is active, for its tenant or, shared, for one that has none of its own of that id."""
        pointers, known = tables.active.c, tables.calibration.c
        users = set(connection.execute(select(pointers.tenant).where(pointers.sku == sku, pointers.id == id)).scalars())
        if tenant != SHARED:
            return tenant in users
        own = select(known.tenant).where(known.sku == sku, known.id == id, known.deleted_at == 0)
        return bool(users - {*connection.execute(own).scalars()} | users & {SHARED})

    def _unknown(self, tenants: Sequence[str], sku: str, id: str) -> NotFound:
        known = ", ".join(self.ids(tenants, sku)) or "none"
        message = f"{sku} has no calibration {id[:80]!r}; it has {known}"
        return NotFound(message, reason="CALIBRATION_NOT_FOUND", field="name", gpu=sku)

    def history(self, tenant: str, sku: str) -> list[Entry]:
        """The audit log of a tenant's calibrations of a SKU, oldest first."""
        return self._entries(_entries_of(tenant, sku).order_by(tables.audit.c.number))

    def newest(self, tenant: str, sku: str, first: int, last: int) -> list[Entry]:
        """Those of its entries from `first` to before `last`, counted from the newest."""
        ordered = _entries_of(tenant, sku).order_by(tables.audit.c.number.desc())
        return self._entries(ordered.offset(first).limit(last - first))

    def _entries(self, found: Select[Any]) -> list[Entry]:
        with reading(self.engine) as connection:
            return [Entry(*row) for row in connection.execute(found)]

    def sweep(self, now: float | None = None) -> None:
        """Forget uploads that nobody goes on with, delete candidates that nobody publishes, purge what was deleted long ago."""
        now = time.time() if now is None else now
        table, pointers, log = tables.calibration, tables.active.c, tables.audit.c
        used = select(log.id).where(log.action.in_(("publish", "rollback")), log.sku == table.c.sku)
        answering = select(pointers.id).where(pointers.sku == table.c.sku)
        old = and_(table.c.at < now - CANDIDATE_S, table.c.id.not_in(used), table.c.id.not_in(answering))
        which = select(table.c.tenant, table.c.sku, table.c.id)
        with writing(self.engine) as connection:
            self.forget_uploads(connection, STALE_S, now=now)
            for row in connection.execute(which.where(old, table.c.deleted_at == 0)).all():
                self._take_away(connection, *row, "server", "expire", "it was never published")
            gone = and_(table.c.deleted_at > 0, table.c.deleted_at < now - DELETED_S)
            for tenant, sku, id in connection.execute(which.where(gone)).all():
                self._purge(connection, tenant, sku, id)

    def forget_uploads(
        self, connection: Connection, older_than_s: float, *, empty: bool = False, now: float | None = None
    ) -> None:
        """Of those older than that: all, or those of which nothing has come."""
        files, last = tables.upload_file.c, (time.time() if now is None else now) - older_than_s
        newest, have = func.max(files.at), func.sum(files.received_bytes)
        found = select(files.tenant, files.content_sha256).group_by(files.tenant, files.content_sha256)
        found = found.having(newest < last, have == 0) if empty else found.having(newest < last)
        for tenant, sha256 in connection.execute(found).all():
            for table in (tables.upload_piece, tables.upload_file):
                connection.execute(delete(table).where(table.c.tenant == tenant, table.c.content_sha256 == sha256))

    def _purge(self, connection: Connection, tenant: str, sku: str, id: str) -> None:
        for table in (tables.calibration_file, tables.calibration):
            connection.execute(delete(table).where(_of(table.c, tenant, sku), table.c.id == id))

    def _record(self, connection: Connection, who: str, action: str, why: str, **own: str) -> None:
        """Add to the audit log, and let every process see that something changed."""
        number = tables.revision.c.number
        connection.execute(update(tables.revision).values(number=number + 1))
        now = connection.execute(select(number)).scalar_one()
        entry = {"number": now, "at": int(time.time()), "who": who, "action": action, "reason": why, **own}
        connection.execute(insert(tables.audit).values(entry))

    def _contents(self, tenant: str, sku: str, id: str) -> dict[str, bytes]:
        """A calibration's files."""
        table = tables.calibration_file
        every = select(table.c.path, table.c.content).where(_of(table.c, tenant, sku), table.c.id == id)
        with reading(self.engine) as connection:
            return {path: bytes(content) for path, content in connection.execute(every)}


def _entries_of(tenant: str, sku: str) -> Select[Any]:
    log = tables.audit.c
    columns = (log.number, log.at, log.who, log.action, log.id, log.before, log.reason)
    return select(*columns).where(_of(log, tenant, sku))


def _of(columns: object, tenant: str, sku: str) -> ColumnElement[bool]:
    """The rows of a tenant's SKU in a table of these columns."""
    return and_(columns.tenant == tenant, columns.sku == sku)  # type: ignore[attr-defined]
