"""The whole advice in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.server.advise.advice import Kind, Recommendation, Verdict
from tilewise.server.advise.asked import Asked

LONGER = 0.01  # of a step: less is not told
SHAPES = (Kind.FREE_WIN, Kind.RESHAPE)


def summary(asked: Sequence[Asked], found: Sequence[Recommendation], wanted: Sequence[Kind]) -> str:
    """What to do about the shape, and what about the rest."""
    told = []
    if any(kind in SHAPES for kind in wanted):
        told.append(about_shape([each for each in found if each.kind in SHAPES]))
    rest = [each for each in found if each.kind not in SHAPES and each.verdict is Verdict.FASTER]
    if rest:
        best = min(rest, key=lambda each: each.score)
        told.append(f"{one(best)} gives {gain(best)}")
    if not told:
        told.append("nothing that was asked for helps beyond the error of the prediction")
    sentence = "; ".join(told)
    where = "" if len({each.gpu.sku.name for each in asked}) == 1 else ", on the GPU that gains least"
    return f"{sentence[0].upper()}{sentence[1:]}{where}."


def about_shape(found: Sequence[Recommendation]) -> str:
    """The best sure gain; else that the shape is good, and the best that cannot be told."""
    sure = [each for each in found if each.verdict is Verdict.FASTER]
    if sure:
        best = sure[0] if sure[0].kind is Kind.FREE_WIN else min(sure, key=lambda each: each.score)
        return f"change {one(best)}: {gain(best)}"
    unsure = min(found, key=lambda each: each.score, default=None)
    doubt = (
        f"; {one(unsure)} might give {1 - unsure.score:.1%}, which the error of the prediction does not let us tell"
        if unsure
        else ""
    )
    return f"your shape is already good: no neighbour is faster beyond the error of the prediction{doubt}"


def one(found: Recommendation) -> str:
    return ", ".join(f"{field} {old} -> {new}" for field, old, new in found.changes)


def gain(found: Recommendation) -> str:
    """Percent of a token's time that is saved, with its bounds; where a step takes longer for it, by how much."""
    what = "fewer GPU-seconds a token" if found.splits else "less time a token"
    slower = max(each.step_ratio for each in found.effects) - 1
    longer = f", but a step takes {slower:.0%} longer" if slower > LONGER else ""
    return f"{1 - found.score:.1%} {what} ({1 - found.high:.1%} to {1 - found.low:.1%}){longer}"
