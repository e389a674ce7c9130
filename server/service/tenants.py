"""Tenants: the services as each caller sees them, over one store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotAvailable, TilewiseError
from tilewise.hwdb.served import ServedDatabase
from tilewise.server.deadline import check_alive
from tilewise.server.service.identity.caller import Caller
from tilewise.server.service.servicers import services
from tilewise.server.service.settings import Settings

if TYPE_CHECKING:
    from tilewise.hwdb.store.store import Store

log = logging.getLogger(__name__)

CALLERS_MAX = 1024  # services kept, one set a caller; they weigh little
SWEEP_S = 3600.0
MIB = 2**20


class Tenants:
    """store: None: the packaged database alone. poll_s: how often other replicas are looked at."""

    def __init__(self, store: Store | None, poll_s: float) -> None:
        self._store = store
        self._databases: dict[str, Database] = {}
        self._stop, self.reachable = threading.Event(), True
        self._services = lru_cache(CALLERS_MAX)(self._services_of)
        if self._store is not None:
            threading.Thread(target=self._watch, args=(poll_s,), name="store", daemon=True).start()

    @property
    def revision(self) -> int:
        """Grows with everything that may change an answer."""
        return self._store.snapshot.revision if self._store is not None else 0

    def catch_up(self, revision: int) -> None:
        """See what another process has seen already."""
        if self._store is not None and self._store.snapshot.revision < revision:
            self._store.refresh()

    def services(self, caller: Caller) -> Mapping[str, object]:
        """The services by name, with the calibrations that the caller's tenant sees."""
        return self._services(caller.tenant, caller.name)

    def database(self, tenant: str) -> Database:
        if tenant not in self._databases:
            packaged = Database.packaged()
            served = (
                ServedDatabase(packaged.folder, self._store, tenant, check_alive)
                if self._store is not None
                else packaged
            )
            self._databases.setdefault(tenant, served)
        return self._databases[tenant]

    def close(self) -> None:
        self._stop.set()
        if self._store is not None:
            self._store.close()

    def _services_of(self, tenant: str, who: str) -> Mapping[str, object]:
        return services(self.database(tenant), who)

    def _watch(self, poll_s: float) -> None:
        """See what others published. While the database is gone, questions are answered from what was known."""
        assert self._store is not None
        looks = 0
        while not self._stop.wait(poll_s):
            looks += 1
            try:
                self._store.refresh()
                if looks % max(int(SWEEP_S / poll_s), 1) == 0:
                    self._store.sweep()
            except TilewiseError as error:
                if self.reachable:
                    log.error("the store is gone, answers come from what was known: %s", error.message)
                self.reachable = False
            except Exception:
                log.exception("looking at the store failed")
            else:
                if not self.reachable:
                    log.warning("the store is back")
                self.reachable = True


def opened(settings: Settings) -> Store | None:
    """The store that is set, if any. Raises InvalidInput (BAD_SETTING), NotAvailable (EXTRA_MISSING) without SQLAlchemy, and as Store does."""
    if not settings.store:
        return None
    try:
        from tilewise.hwdb.store.store import Store

        return Store(settings.store, settings.tenant_mib * MIB, settings.store_password())
    except ImportError as error:
        message = f"a store needs {error.name}: pip install 'tilewise[service]'"
        raise NotAvailable(message, reason="EXTRA_MISSING") from error
