"""What a reader of shape advice should know of the GPUs that were asked; the texts stand in notes.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.asked import Asked
from tilewise.server.advise.subject import WIDTHS, Subject


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads((files("tilewise.server.advise") / "notes.toml").read_text(encoding="utf-8"))


def notes(subject: Subject, asked: Sequence[Asked]) -> Iterator[str]:
    """One sentence each, once a GPU."""
    for gpu in {each.gpu.sku.name: each.gpu for each in asked}.values():
        if gpu.calibration is None:
            yield _texts()["uncalibrated"].format(gpu=gpu.sku.name)
        sizes = ", ".join(strided(subject, gpu))
        if sizes:
            yield _texts()["stride"]["text"].format(gpu=gpu.sku.name, sizes=sizes)


def strided(subject: Subject, gpu: Gpu) -> list[str]:
    """Sizes that collide by the GPU's stride rule, where it has one."""
    rule = _texts()["stride"]
    if gpu.sku.vendor.lower() != rule["vendor"].lower():
        return []
    found = ((field, subject.sizes[field]) for field in ("hidden_size", *WIDTHS) if field in subject.varied)
    return [f"{field} {size}" for field, size in found if size % rule["elements"] == 0]
