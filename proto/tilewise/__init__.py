"""Tilewise: how fast a model shape will run on a production GPU, before the model exists."""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # a tenth of a start's time, and few need it

        return version("tilewise")
    raise AttributeError(f"module 'tilewise' has no attribute {name!r}")
