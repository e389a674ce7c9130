"""Tilewise: how fast a model shape will run on a production GPU, before the model exists.

    import tilewise
    report = tilewise.predict("config.json", gpu="h100-sxm5-80gb", phase="train", sequence=4096)
    report.step.time_s, report.step.wall, report.step.mfu

Everything is imported when it is first used, so that `import tilewise` costs nothing.
"""

TYPE_CHECKING = False  # type checkers take it for typing's, whose import would be most of this one's time

if TYPE_CHECKING:
    from tilewise.client.api import Client, batch, check, gpus, predict, rank, recommend, sweep, trace
    from tilewise.client.results import Advice, Check, Ranking, Report, Sweep, Traced
    from tilewise.hwdb.errors import (
        InvalidInput,
        NotAvailable,
        NotFound,
        OutOfRange,
        Overloaded,
        TilewiseError,
        TooLarge,
        Unavailable,
    )  # fmt: skip

    __version__: str

_HOMES = {
    "tilewise.client.api": ("Client", "batch", "check", "gpus", "predict", "rank", "recommend", "sweep", "trace"),
    "tilewise.client.results": ("Advice", "Check", "Ranking", "Report", "Sweep", "Traced"),
    "tilewise.hwdb.errors": (
        "InvalidInput", "NotAvailable", "NotFound", "OutOfRange", "Overloaded", "TilewiseError", "TooLarge", "Unavailable",
    ),
}  # fmt: skip
__all__ = [
    "Advice", "Check", "Client", "InvalidInput", "NotAvailable", "NotFound", "OutOfRange", "Overloaded", "Ranking",
    "Report", "Sweep", "TilewiseError", "TooLarge", "Traced", "Unavailable", "batch", "check", "gpus", "predict", "rank",
    "recommend", "sweep", "trace",
]  # fmt: skip

if not TYPE_CHECKING:  # or else every name would have this function's type

    def __getattr__(name):
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version  # a tenth of a start's time, and few need it

            try:
                return version("tilewise")
            except PackageNotFoundError:  # a clone without an install
                return f"{_written()}+tree"
        for home, names in _HOMES.items():
            if name in names:
                from importlib import import_module

                return globals().setdefault(name, getattr(import_module(home), name))
        raise AttributeError(f"module 'tilewise' has no attribute {name!r}")

    def __dir__():
        return [*globals(), *__all__, "__version__"]


def _written() -> str:
    """The version in a clone's pyproject.toml."""
    import tomllib
    from pathlib import Path

    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])
