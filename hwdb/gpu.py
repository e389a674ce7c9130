"""Gpu: a SKU with its active calibration; the one thing the server asks for times."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tilewise.hwdb.kernels import roofline
from tilewise.hwdb.launch import Launch, launch
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Peak, Sku
from tilewise.hwdb.table import Kind, OperatorTable
from tilewise.hwdb.times import State, Times, merge

FAMILIES = {kind: kind.name.lower() for kind in Kind}  # Kind -> module in hwdb/kernels and model in a calibration


@dataclass(frozen=True)
class Gpu:
    """sku: the datasheet; calibration: what was measured on it, None where nothing was."""

    sku: Sku
    calibration: Any = None

    def predict(self, table: OperatorTable, state: State = State.BURST) -> Times:
        """Times of every row: by the calibration's model of its kind where there is one, else by the roofline."""
        fitted = [kind for kind in Kind if self.calibration is not None and self.calibration.model(FAMILIES[kind])]
        if not fitted:
            return roofline.predict(table, {}, self.sku, state)
        parts, rest = [], np.ones(len(table), bool)
        for kind in fitted:
            rows = table.kind == kind
            rest &= ~rows
            if rows.any():
                kernel = import_module(f"tilewise.hwdb.kernels.{FAMILIES[kind]}")
                model = self.calibration.model(FAMILIES[kind])
                parts.append((np.flatnonzero(rows), kernel.predict(table.select(rows), model, self.sku, state)))
        if rest.any():
            parts.append((np.flatnonzero(rest), roofline.predict(table.select(rest), {}, self.sku, state)))
        return merge(len(table), parts)

    def peak(self, precision: Precision) -> Peak:
        """The dense peak that an MFU is divided by. Raises NotAvailable (PRECISION_NOT_AVAILABLE)."""
        return self.sku.peak(precision)

    def launch(self, mode: str) -> Launch:
        """Cost of launching a kernel in "eager", "compiled" or "graph" mode. Raises InvalidInput (UNKNOWN_MODE)."""
        model = self.calibration.model("launch") if self.calibration is not None else None
        return launch(mode, model)
