"""Versions of what decides kernels and times."""

from __future__ import annotations

import importlib.metadata
import platform

import torch

LIBRARIES = ("triton", "numpy", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-nccl-cu13")


def stack() -> dict[str, str]:
    """Name and version of Python, torch, and the libraries under it; those that are absent are left out."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    versions["cuda"] = str(torch.version.cuda or "")
    versions["hip"] = str(torch.version.hip or "")
    if torch.backends.cudnn.is_available():
        versions["cudnn"] = str(torch.backends.cudnn.version())
    return {name: version for name, version in versions.items() if version}
