"""Tilewise: how fast a model shape will run on a production GPU, before the model exists."""

from importlib.metadata import version as _version


def __getattr__(name: str) -> str:
    if name == "__version__":
        return _version("tilewise")
    raise AttributeError(name)
