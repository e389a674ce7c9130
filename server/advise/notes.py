"""What a reader of shape advice should know of the GPUs that were asked; the texts stand in notes.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.table import Kind
from tilewise.server.advise.asked import Asked
from tilewise.server.advise.subject import WIDTHS, Subject
from tilewise.server.step.report import Report


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads((files("tilewise.server.advise") / "notes.toml").read_text(encoding="utf-8"))


def notes(subject: Subject, asked: Sequence[Asked], before: Sequence[Report]) -> Iterator[str]:
    """One sentence each, once a GPU. before: how the model runs as it is, one report for each that is asked."""
    for each, report in {
        each.gpu.sku.name: (each, report) for each, report in zip(asked, before, strict=True)
    }.values():
        gpu = each.gpu
        if not gpu.answers_by or by_ceilings(report):
            yield _texts()["uncalibrated"].format(gpu=gpu.sku.name)
        sizes = ", ".join(strided(subject, gpu))
        if sizes:
            yield _texts()["stride"]["text"].format(gpu=gpu.sku.name, sizes=sizes)


def by_ceilings(report: Report) -> bool:
    """Whether most of the time of products comes from ceilings alone, with no measured product near."""
    seconds = np.where(report.table.kind == Kind.GEMM, report.table.count * report.times.time_s, 0.0)
    rough = ~np.isfinite(report.times.distance)
    return bool(2 * seconds[rough].sum() > seconds.sum())


def strided(subject: Subject, gpu: Gpu) -> list[str]:
    """Sizes that collide by the GPU's stride rule, where it has one."""
    rule = _texts()["stride"]
    if gpu.sku.vendor.lower() != rule["vendor"].lower():
        return []
    found = ((field, subject.sizes[field]) for field in ("hidden_size", *WIDTHS) if field in subject.varied)
    return [f"{field} {size}" for field, size in found if size % rule["elements"] == 0]
