"""Database: the packaged SKU files and calibrations, read when asked for."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.hwdb import dies, names, packaged, sku_file
from tilewise.hwdb.errors import NotFound
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.times import Trust

if TYPE_CHECKING:
    from tilewise.hwdb.calibration import Calibration
    from tilewise.hwdb.gpu import Gpu


class Database:
    """A folder with skus/*.toml and calibrations/<sku>/<id>/. Files are read once, when first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._skus: dict[str, Sku] = {}
        self._calibrations: dict[tuple[str, str], Calibration] = {}
        self._published: dict[str, str | None] = {}
        self._active: dict[str, str | None] = {}

    @staticmethod
    @cache
    def packaged() -> Database:
        """The database that is installed with the package; one object a process."""
        return Database(Path(packaged.folder("tilewise.hwdb")))

    @cached_property
    def version(self) -> str:
        """Hash of the data: the same files give the same version on any machine.

        Of a calibration only its card is read: it holds the hash of the other files.
        """
        digest = hashlib.sha256()
        for pattern in ("*.toml", "skus/*.toml", "calibrations/*/active", "calibrations/*/*/card.json"):
            for path in sorted(self.folder.glob(pattern)):
                content = path.read_bytes()
                digest.update(f"{path.relative_to(self.folder).as_posix()} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:12]

    def skus(self) -> tuple[str, ...]:
        """Names of all SKUs, sorted."""
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in (self.folder / "skus").glob("*.toml")))

    def sku(self, name: str) -> Sku:
        """The SKU of exactly this name. Raises NotFound (UNKNOWN_GPU) and InvalidInput (BAD_SKU_FILE)."""
        if name not in self._skus:
            if name not in self.skus():
                raise names.unknown(name, self.skus(), "gpu")
            text = (self.folder / "skus" / f"{name}.toml").read_text(encoding="utf-8")
            found = sku_file.read(text, name)
            self._skus[name] = dies.carried(found, self.sku(there)) if (there := dies.twin(found)) else found
        return self._skus[name]

    def resolve(self, name: str) -> names.Resolution:
        """The SKU that a name, alias or driver string means; see hwdb.names.resolve for what is raised."""
        if names.normalise(name) in self.skus():
            return names.Resolution(names.normalise(name))
        return names.resolve(name, map(self.sku, self.skus()))

    def identify(self, device: str, sm_count: int, memory_bytes: float) -> str:
        """The SKU of a device as its driver reports it; see hwdb.names.identify."""
        return names.identify(device, sm_count, memory_bytes, map(self.sku, self.skus()))

    def gpu(self, name: str, calibration: str = "") -> Gpu:
        """The GPU of a SKU name or alias with a calibration: the one of that id, else the active one, else none (but that of a SKU of the same dies).

        Raises as `resolve` does, and NotFound (CALIBRATION_NOT_FOUND).
        """
        from tilewise.hwdb.gpu import Gpu

        sku = self.sku(self.resolve(name).sku)
        chosen = calibration or self.active(sku.name)
        if not chosen:
            return Gpu(sku, twin=self.gpu(there) if (there := dies.twin(sku)) else None)
        other = self._newest_published(sku.name) if self.trust(sku.name, chosen) is Trust.MEASURED else None
        return Gpu(sku, self.calibration(sku.name, chosen), self.calibration(sku.name, other) if other else None)

    def _newest_published(self, sku: str) -> str | None:
        """The packaged calibration that others' measurements made, which knows what ours leave out; None without one."""
        if sku not in self._published:
            found = [id for id in self._in_folder(sku) if self.trust(sku, id) is Trust.PUBLISHED]
            self._published[sku] = max(found, default=None)
        return self._published[sku]

    def calibration(self, sku: str, id: str) -> Calibration:
        """One calibration of a SKU. Raises NotFound (CALIBRATION_NOT_FOUND), listing those there are."""
        if (sku, id) not in self._calibrations:
            self._calibrations[sku, id] = self._open(sku, id)
        return self._calibrations[sku, id]

    def card(self, sku: str, id: str) -> Calibration:
        """One of which the card alone is asked. Raises as `calibration`."""
        return self.calibration(sku, id)

    def _open(self, sku: str, id: str) -> Calibration:
        from tilewise.hwdb.calibration import Calibration

        there = self.calibrations(sku)
        if id not in there:
            message = f"{sku} has no calibration {id!r}; it has {', '.join(there) or 'none'}"
            raise NotFound(message, reason="CALIBRATION_NOT_FOUND", field="calibration", gpu=sku)
        return Calibration.open(self.folder / "calibrations" / sku / id)

    def calibrations(self, sku: str) -> tuple[str, ...]:
        """Ids of a SKU's calibrations, oldest first by name; empty where there is none."""
        return self._in_folder(sku)

    def _in_folder(self, sku: str) -> tuple[str, ...]:
        folder = self.folder / "calibrations" / self.sku(sku).name
        return tuple(sorted(card.parent.name for card in folder.glob("*/card.json")))

    def active(self, sku: str) -> str | None:
        """Id of the calibration that answers for a SKU: the file `active` beside the calibrations; None without one.

        Without such a file the newest of the highest trust: a published one is retired when a measured one arrives. What a
        server was given is not among them: it answers once it is published.
        """
        if sku not in self._active:
            pointer = self.folder / "calibrations" / self.sku(sku).name / "active"
            if pointer.is_file():
                self._active[sku] = pointer.read_text(encoding="utf-8").strip()
            else:
                newest = max(self._in_folder(sku), key=lambda id: (self.trust(sku, id), id), default=None)
                self._active[sku] = newest
        return self._active[sku]

    def trust(self, sku: str, id: str) -> Trust:
        """How far a calibration is to be trusted, by its card: measured unless it says otherwise."""
        return self.calibration(sku, id).trust
