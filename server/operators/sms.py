"""Time that a kernel spends on the SMs beside the memory it moves: masks read, angles and random numbers worked out for every element."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilewise.hwdb import packaged
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number

PICO = 1e-12


@cache
def facts() -> dict[str, Any]:
    """sms.toml."""
    return packaged.toml("tilewise.server.operators", "sms.toml")


def spend(e: Emitter, name: str, seconds: Number, direction: str, repeat: Number = 1) -> None:
    """`seconds` of the reference's SMs, as bytes of a kernel that the SMs bind alike."""
    size = seconds * facts()["reference"]["bytes_per_s"]
    e.memory(name, "rope_backward", size / 256, 64, size / 2, size / 2, direction=direction, kernels=0, repeat=repeat)


def mask_s(width: Number, direction: str) -> Number:
    """What a dense mask costs an attention kernel for each pair of query and key, by the width of its heads."""
    entries = facts()["mask"]
    cost = PICO * np.array([entry[direction] for entry in entries])
    found = cost[np.minimum(np.searchsorted([entry["width"] for entry in entries], width), len(entries) - 1)]
    return found if isinstance(width, np.ndarray) else float(found)
