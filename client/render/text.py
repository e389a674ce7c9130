"""Plain text for people: tables and figures with units."""

from __future__ import annotations

from collections.abc import Sequence

SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns two spaces apart, those listed in `right` aligned to the right. Cells hold no line breaks."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(cells(line, widths, right)).rstrip() for line in lines)


def cells(line: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]


def seconds(value: float) -> str:
    """0.0123 -> '12.3 ms'."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{significant(value / scale)} {unit}"
    return f"{significant(value / 1e-9)} ns" if value > 0 else "0 s"


def interval(low: float, value: float, high: float) -> str:
    """Seconds with the 90 % interval in the same unit: '12.3 ms (11.9-12.8)'."""
    text = seconds(value)
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[text.split()[1]]
    return f"{text} ({significant(low / scale)}-{significant(high / scale)})"


def si(value: float, unit: str) -> str:
    """8.03e9, 'B' -> '8.03 GB'; powers of ten, never of two."""
    for scale, prefix in SI:
        if abs(value) >= scale:
            return f"{significant(value / scale)} {prefix}{unit}"
    return f"{significant(value)} {unit}".rstrip()


def gib(size_bytes: float) -> str:
    """Bytes as GiB (2**30)."""
    return f"{size_bytes / 2**30:.2f} GiB"


def parameters(count: int) -> str:
    """8030261248 -> '8.03 B'; billions, as the field says."""
    return f"{significant(count / 1e9)} B" if count >= 1e9 else f"{significant(count / 1e6)} M"


def percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def significant(value: float) -> str:
    """Three significant digits, no exponent: '1234', '123', '12.3', '1.23', '0.123'."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:.{digits}f}"
