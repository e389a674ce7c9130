"""ServedDatabase: the packaged database together with the calibrations that a server was given."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.store import Store


class ServedDatabase(Database):
    """Reads both; where the store has an active calibration for a SKU, that one answers (but see `active`)."""

    def __init__(self, folder: Path, store: Store) -> None:
        super().__init__(folder)
        self.store = store

    @property
    def version(self) -> str:
        """Changes with every publication."""
        pointers = "".join(f"{sku} {self.store.active(sku)}\n" for sku in self.skus())
        packaged: str = Database.packaged().version
        return hashlib.sha256(f"{packaged}\n{pointers}".encode()).hexdigest()[:12]

    def calibrations(self, sku: str) -> tuple[str, ...]:
        return tuple(sorted({*super().calibrations(sku), *self.store.ids(sku)}))

    def active(self, sku: str) -> str | None:
        """The store's, unless that is of lower trust than the packaged one: a published one retires before a measured one."""
        kept, packaged = self.store.active(self.sku(sku).name), super().active(sku)
        if kept and packaged and self.trust(sku, kept) < self.trust(sku, packaged):
            return packaged
        return kept or packaged

    def _open(self, sku: str, id: str) -> Calibration:
        return self.store.open(sku, id) if id in self.store.ids(sku) else super()._open(sku, id)
