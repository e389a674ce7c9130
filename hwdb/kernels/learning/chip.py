"""What the laws need of the GPU that a row ran on; siblings of one generation are fitted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.dies import twin
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints


class Chip(Record):
    """code: which of the GPUs fitted together; sms, hbm (datasheet bytes/s), special (exp/s): shape (rows,);

    place: index of each row's GPU into `generations` and `peak`, dense FLOP/s of every Precision, shape (gpus, precisions); of a
    format that the GPU lacks that of bf16, in which its values are multiplied after a cast
    """

    code: Ints
    place: Ints
    generations: tuple[str, ...]
    sms: Floats
    hbm: Floats
    special: Floats
    peak: Floats

    @classmethod
    def of(cls, skus: Sequence[Sku], which: Ints) -> Chip:
        """The chip of every row; which: index into `skus`, shape (rows,)."""
        facts = np.array([[sku.sm_count, sku.hbm_bytes_per_s, sku.exp_per_s] for sku in skus], float)
        sms, hbm, special = facts.T[:, which]
        peaks = np.array([_peaks(sku) for sku in skus])
        return cls(which, which, tuple(sku.generation for sku in skus), sms, hbm, special, peaks)

    @classmethod
    def one(cls, sku: Sku, model: Mapping[str, Any], rows: int) -> Chip:
        """`rows` rows on the GPU that a model answers for, or on one of the same dies."""
        found, names = cls.of([sku], np.zeros(rows, np.int64)), model["together"]
        return replace(found, code=found.code + names.index(sku.name if sku.name in names else twin(sku)))

    def at(self, precision: Ints) -> Floats:
        """Dense FLOP/s of each row's own precision."""
        rate: Floats = self.peak[self.place, precision]
        return rate

    def of_generation(self, *names: str) -> NDArray[np.bool_]:
        """Rows that run on one of these generations."""
        found: NDArray[np.bool_] = np.array([one in names for one in self.generations])[self.place]
        return found


def _peaks(sku: Sku) -> list[float]:
    bf16 = float(sku.peaks["bf16"].value)
    keys = (FORMATS[precision].peak for precision in Precision)
    return [float(sku.peaks[key].value) if key in sku.peaks else bf16 for key in keys]
