"""A ranking of GPUs, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tilewise.client.ranking import Entry, swaps
from tilewise.client.render.report import named
from tilewise.client.render.text import significant, table

HEAD = ("place", "GPU", "precision", "tokens/s (90 %)", "tokens/J at TDP", "trust", "calibration")


def page(rankings: Mapping[int, Sequence[Entry]], found: Sequence[Entry]) -> str:
    """One table a batch; below, where the order changes, and why a GPU or a precision is missing."""
    lines: list[str] = []
    for batch, ranking in rankings.items():
        stack = f", {named(ranking[0].stack)}" if ranking else ""
        lines += [f"batch {batch}{stack}", table(HEAD, [_line(entry) for entry in ranking], right=(0, 4)), ""]
    for (small, before), (large, after) in pairwise(rankings.items()):
        for was, now in swaps(before, after):
            lines.append(f"from batch {small} to {large} {now} overtakes {was}")
    lines += [f"{entry.gpu} {entry.precision}: {entry.reason}" for entry in _refused(found)]
    note = "equal places: what is between them is within the error of the predictions, so their order is not known"
    return "\n".join([*lines, note]) + "\n"


def _line(entry: Entry) -> tuple[str, ...]:
    rate = f"{significant(entry.tokens_per_s)} ({significant(entry.tokens_per_s_low)}-{significant(entry.tokens_per_s_high)})"
    name = entry.gpu if entry.fits else f"{entry.gpu} (does not fit)"
    per_j = significant(entry.tokens_per_j_at_tdp)
    return str(entry.place), name, entry.precision, rate, per_j, entry.trust, entry.calibration or "none: datasheet"


def _refused(found: Sequence[Entry]) -> list[Entry]:
    """The first refusal of every GPU and precision."""
    first: dict[tuple[str, str], Entry] = {}
    for entry in found:
        if entry.reason:
            first.setdefault((entry.gpu, entry.precision), entry)
    return list(first.values())


def data(rankings: Mapping[int, Sequence[Entry]], found: Sequence[Entry]) -> dict[str, object]:
    return {
        "rankings": [
            {"batch": batch, "gpus": [row_of(entry) for entry in ranking]} for batch, ranking in rankings.items()
        ],
        "all": [row_of(entry) for entry in found],
    }


def row_of(entry: Entry) -> dict[str, object]:
    return {
        "place": entry.place or None, "batch": entry.batch, "gpu": entry.gpu, "precision": entry.precision,
        "tokens_per_s": entry.tokens_per_s or None, "tokens_per_s_low": entry.tokens_per_s_low or None,
        "tokens_per_s_high": entry.tokens_per_s_high or None, "tokens_per_j_at_tdp": entry.tokens_per_j_at_tdp or None, "power_w": entry.power_w,
        "fits": entry.fits, "trust": entry.trust, "calibration": entry.calibration, "reason": entry.reason, "stack": entry.stack,
    }  # fmt: skip
