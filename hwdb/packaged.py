"""Data files beside the modules. importlib.resources would import zipfile, tempfile and random: a tenth of a first question's time."""

from __future__ import annotations

import tomllib
from importlib import import_module
from typing import Any


def folder(package: str) -> str:
    """Where a package such as "tilewise.hwdb.kernels" lies; it is always unpacked."""
    found: str = import_module(package).__path__[0]
    return found


def text(package: str, name: str) -> str:
    """A text file of a package."""
    with open(f"{folder(package)}/{name}", encoding="utf-8") as file:
        return file.read()


def toml(package: str, name: str) -> dict[str, Any]:
    return tomllib.loads(text(package, name))
