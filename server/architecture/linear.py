"""Norms and matrices from canonical keys; matrices that a family table lists in full."""

from __future__ import annotations

from typing import Any

from tilewise.server.architecture.model import Linear, Norm, Size, Split
from tilewise.server.architecture.sizes import Keys, product


def norm(keys: Keys, name: str, width: Size, heads: Size = 1) -> Norm:
    return Norm(
        name=name, width=width, heads=heads, kind=keys["norm"], weight=keys["norm_weight"], bias=keys["norm_bias"]
    )


def sized_norms(keys: Keys, tables: list[dict[str, Any]]) -> tuple[Norm, ...]:
    """Norms of a family table whose width is not the model's: {name, width, heads}."""
    return tuple(
        norm(keys, table["name"], product(keys, table["width"]), product(keys, table.get("heads", 1)))
        for table in tables
    )


def column(name: str, inputs: Size, outputs: Size, bias: bool = False) -> Linear:
    return Linear(name=name, inputs=inputs, outputs=outputs, bias=bias, split=Split.COLUMN)


def row(name: str, inputs: Size, outputs: Size, bias: bool = False) -> Linear:
    return Linear(name=name, inputs=inputs, outputs=outputs, bias=bias, split=Split.ROW)


def listed(keys: Keys, tables: list[dict[str, Any]]) -> tuple[Linear, ...]:
    """Matrices of a family table: {name, inputs, outputs, bias, copies, weightless} with sizes as `product` reads them."""
    return tuple(
        Linear(
            name=table["name"],
            inputs=product(keys, table["inputs"]),
            outputs=product(keys, table["outputs"]),
            bias=bool(keys[bias] if isinstance(bias := table.get("bias", False), str) else bias),
            weightless=table.get("weightless", False),
        )
        for table in tables
        for _ in range(int(product(keys, table.get("copies", 1))))
    )
