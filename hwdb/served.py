"""ServedDatabase: the packaged database together with the calibrations that a server was given, as one tenant sees them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.confined import confined, waiting
from tilewise.hwdb.database import Database

if TYPE_CHECKING:
    from tilewise.hwdb.gpu import Gpu
    from tilewise.hwdb.store.store import Store

SHARED = ""  # the tenant whose calibrations everybody sees


class ServedDatabase(Database):
    """A tenant's own calibrations, then the shared ones, then the packaged ones; so too which one answers (but see `active`)."""

    def __init__(self, folder: Path, store: Store, tenant: str = SHARED, alive: Callable[[], None] = waiting) -> None:
        """alive: is called while an upload is tried; what it raises ends that"""
        super().__init__(folder)
        self.store, self.tenant, self._alive = store, tenant, alive
        packaged = Database.packaged()
        if folder == packaged.folder:  # the same for every tenant
            self._skus, self._calibrations, self._published = (
                packaged._skus,
                packaged._calibrations,
                packaged._published,
            )
        self._tenants = (tenant, SHARED) if tenant != SHARED else (SHARED,)
        self._version = (-2, "")
        self._tried: set[str] = set()

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
        if id not in self.calibrations(sku):
            self.store.refresh()  # it may have come to another replica a moment ago
        if id in self.store.ids(self._tenants, sku):
            return self.store.open(self._tenants, sku, id)
        return super().calibration(sku, id)

    def card(self, sku: str, id: str) -> Calibration:
        of_store = id in self.store.ids(self._tenants, sku)
        return self.store.card(self._tenants, sku, id) if of_store else self.calibration(sku, id)

    def active(self, sku: str) -> str | None:
        """The store's, unless that is of lower trust than the packaged one: a published one retires before a measured one."""
        kept, packaged = self.store.active(self._tenants, self.sku(sku).name), super().active(sku)
        if kept and packaged and self.trust(sku, kept) < self.trust(sku, packaged):
            return packaged
        return kept or packaged

    def gpu(self, name: str, calibration: str = "") -> Gpu:
        """As Database.gpu; an uploaded calibration is tried first. Raises NotAvailable (BAD_CALIBRATION) besides."""
        gpu = super().gpu(name, calibration)
        found = gpu.calibration
        if (
            isinstance(found, Calibration)
            and found.sha256 not in self._tried
            and found.id in self.store.ids(self._tenants, gpu.sku.name)
        ):
            folders = str(self.folder), gpu.sku.name, str(found.folder)
            confined("tilewise.hwdb.judged:trial", *folders, alive=self._alive)
            self._tried.add(found.sha256)
        return gpu
