"""What a model drops at random while it trains: read off its config, or its class's default where the config says nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec.structs import asdict

from tilewise.hwdb.record import Record


class Dropout(Record):
    """embedding: what the first layer reads; attention: the weights of keys; hidden: what each sub-layer adds to the stream."""

    embedding: bool = False
    attention: bool = False
    hidden: bool = False

    @property
    def note(self) -> str:
        """For readers: "dropout of embedding, hidden states"; "" where nothing is dropped."""
        what = ", ".join(name for name, dropped in asdict(self).items() if dropped)
        return what and f"trains with dropout ({what}), as the config says or its class does by default"


NO_DROPOUT = Dropout()


def dropout_of(raw: Mapping[str, Any], family: str) -> Dropout:
    """The places in which the (text) config of a family drops."""
    facts = _facts()
    silent = {key for key in facts["defaults"].get(family, ()) if raw.get(key) is None}
    rates = {key: rate for key, rate in raw.items() if isinstance(rate, int | float) and rate > 0}
    return Dropout(**{place: not silent.union(rates).isdisjoint(keys) for place, keys in facts["keys"].items()})


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads((files("tilewise.server.architecture") / "dropout.toml").read_text(encoding="utf-8"))
