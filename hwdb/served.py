"""ServedDatabase: the packaged database together with the calibrations that a server was given, as one tenant sees them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.trial import tried

if TYPE_CHECKING:
    from tilewise.hwdb.gpu import Gpu
    from tilewise.hwdb.store.store import Store

SHARED = ""  # the tenant whose calibrations everybody sees
OPEN_MAX = 16  # calibrations kept in memory, some 20 MB each


class ServedDatabase(Database):
    """A tenant's own calibrations, then the shared ones, then the packaged ones; so too which one answers (but see `active`)."""

    def __init__(self, folder: Path, store: Store, tenant: str = SHARED) -> None:
        super().__init__(folder)
        self.store, self.tenant = store, tenant
        self._tenants = (tenant, SHARED) if tenant != SHARED else (SHARED,)
        self._version = (-2, "")
        self._tried: set[str] = set()
        self._opened: OrderedDict[tuple[str, str], Calibration] = OrderedDict()

    @property
    def version(self) -> str:
        """Changes with everything that changes an answer to this tenant, and with nothing else."""
        snapshot = self.store.snapshot
        if self._version[0] != snapshot.revision:
            seen = {sku: self.store.active(self._tenants, sku) or "" for sku in self.skus()}
            pointers = "".join(f"{sku} {id}\n" for sku, id in seen.items())
            digest = hashlib.sha256(f"{Database.packaged().version}\n{pointers}".encode()).hexdigest()[:12]
            self._version = (snapshot.revision, digest)
        return self._version[1]

    def calibrations(self, sku: str) -> tuple[str, ...]:
        return tuple(sorted({*super().calibrations(sku), *self.store.ids(self._tenants, sku)}))

    def calibration(self, sku: str, id: str) -> Calibration:
        """Raises NotFound (CALIBRATION_NOT_FOUND), listing what this tenant sees."""
        found = self._opened.pop((sku, id), None) or self._open(sku, id)
        self._opened[sku, id] = found
        if len(self._opened) > OPEN_MAX:
            self._opened.popitem(last=False)
        return found

    def active(self, sku: str) -> str | None:
        """The store's, unless that is of lower trust than the packaged one: a published one retires before a measured one."""
        kept, packaged = self.store.active(self._tenants, self.sku(sku).name), super().active(sku)
        if kept and packaged and self.trust(sku, kept) < self.trust(sku, packaged):
            return packaged
        return kept or packaged

    def _open(self, sku: str, id: str) -> Calibration:
        if id not in self.calibrations(sku):
            self.store.refresh()  # it may have come to another replica a moment ago
        if id in self.store.ids(self._tenants, sku):
            return self.store.open(self._tenants, sku, id)
        return super()._open(sku, id)

    def gpu(self, name: str, calibration: str = "") -> Gpu:
        """As Database.gpu; an uploaded calibration is tried first. Raises NotAvailable (BAD_CALIBRATION) besides."""
        gpu = super().gpu(name, calibration)
        found = gpu.calibration
        if (
            isinstance(found, Calibration)
            and found.sha256 not in self._tried
            and found.id in self.store.ids(self._tenants, gpu.sku.name)
        ):
            tried(found, gpu.sku)
            self._tried.add(found.sha256)
        return gpu
