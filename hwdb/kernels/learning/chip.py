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
    """code: which of the GPUs fitted together; generation; sms, hbm (datasheet bytes/s), special (exp/s): shape (rows,);

    peak: dense FLOP/s of every Precision, shape (rows, precisions); of a format that the GPU lacks that of bf16, in which
    its values are multiplied after a cast
    """

    code: Ints
    generation: NDArray[np.str_]
    sms: Floats
    hbm: Floats
    special: Floats
    peak: Floats

    @classmethod
    def of(cls, skus: Sequence[Sku], which: Ints) -> Chip:
        """The chip of every row; which: index into `skus`, shape (rows,)."""
        facts = np.array([[sku.sm_count, sku.hbm_bytes_per_s, sku.exp_per_s] for sku in skus], float)
        peaks = np.array([_peaks(sku) for sku in skus])
        sms, hbm, special = facts[which].T
        generation = np.array([sku.generation for sku in skus])
        return cls(which, generation[which], sms, hbm, special, peaks[which])

    @classmethod
    def one(cls, sku: Sku, model: Mapping[str, Any], rows: int) -> Chip:
        """`rows` rows on the GPU that a model answers for, or on one of the same dies."""
        found, names = cls.of([sku], np.zeros(rows, np.int64)), model["together"]
        return replace(found, code=found.code + names.index(sku.name if sku.name in names else twin(sku)))

    def at(self, precision: Ints) -> Floats:
        """Dense FLOP/s of each row's own precision."""
        rate: Floats = self.peak[np.arange(len(precision)), precision]
        return rate


def _peaks(sku: Sku) -> list[float]:
    bf16 = float(sku.peaks["bf16"].value)
    keys = (FORMATS[precision].peak for precision in Precision)
    return [float(sku.peaks[key].value) if key in sku.peaks else bf16 for key in keys]
