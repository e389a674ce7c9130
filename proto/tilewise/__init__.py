"""Tilewise: how fast a model shape will run on a production GPU, before the model exists."""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # a tenth of a start's time, and few need it

        try:
            return version("tilewise")
        except PackageNotFoundError:  # a clone without an install
            return f"{_written()}+tree"
    raise AttributeError(f"module 'tilewise' has no attribute {name!r}")


def _written() -> str:
    """The version in a clone's pyproject.toml."""
    import tomllib
    from pathlib import Path

    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])
