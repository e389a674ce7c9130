"""Tilewise: how fast a model shape will run on a production GPU, before the model exists."""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # a tenth of a start's time, and few need it

        try:
            return version("tilewise")
        except PackageNotFoundError:  # run from a clone, without an install
            return "0+tree"
    raise AttributeError(f"module 'tilewise' has no attribute {name!r}")
