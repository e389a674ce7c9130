"""Free wins: one decision about one size, for little or no change of parameters. Each is predicted, none comes from a list of gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.server.advise.advice import Kind, Recommendation
from tilewise.server.advise.asked import Asked, as_changes, beyond_size, figures, gains
from tilewise.server.advise.proposals import proposals
from tilewise.server.advise.subject import Subject
from tilewise.server.advise.weigh import Scales
from tilewise.server.workload import Workload

TOLERANCE = 0.01  # default of how far the parameter count may move
LEAST_GAIN = 0.002  # below it an edit is not worth a line; the spread of repeated measurements of a step
FREE = 1e-3  # of the parameters: edits that change fewer are ranked by their gain alone


class Edit(Record, kw_only=True):
    """One decision.

    field:  the size that is decided; before, after: its values
    sizes:  every size to set, `field` first: key and value heads go with the query heads
    time_ratio: time of a token after over before, with the bounds of its 90 % interval
    parameter_change, memory_change: after less before, in parameters and in resident bytes of one GPU
    """

    field: str
    before: int
    after: int
    sizes: dict[str, int]
    time_ratio: float
    low: float
    high: float
    parameter_change: int
    memory_change: int


def single_edits(
    text: str,
    overrides: Mapping[str, int],
    workload: Workload,
    gpu: Gpu,
    *,
    fields: Sequence[str] = (),
    tolerance: float = TOLERANCE,
    most: int = 2,
) -> list[Edit]:
    """The best edits of every size of a model, the largest gain for each parameter first; without those that gain nothing.

    text, overrides: the model, as `read_with` takes them
    fields: sizes that may be decided; none: all that the model has
    tolerance: largest change of the parameter count, as a share; most: edits for one size
    Raises InvalidInput where the model as it is cannot be read or run.
    """
    scales = Scales(Subject(text, overrides), [Asked(gpu, workload)])
    if scales.before[0].step.time is None:
        return []
    best = best_edits(scales.subject, scales.asked, fields or scales.subject.varied, tolerance, most)
    found = ((sizes, scales.weigh(Kind.FREE_WIN, sizes)) for sizes in best)
    return [as_edit(scales.subject, sizes, weighed) for sizes, weighed in found if weighed is not None]


def as_edit(subject: Subject, sizes: dict[str, int], weighed: Recommendation) -> Edit:
    field = next(iter(sizes))
    return Edit(
        field=field,
        before=subject.sizes[field],
        after=sizes[field],
        sizes=sizes,
        time_ratio=weighed.score,
        low=weighed.low,
        high=weighed.high,
        parameter_change=weighed.parameter_change,
        memory_change=weighed.memory_change,
    )


def best_edits(
    subject: Subject, asked: Sequence[Asked], fields: Sequence[str], tolerance: float, most: int
) -> list[dict[str, int]]:
    """Sizes of the `most` best edits of every field, by gain for each parameter changed; all evaluated in one pass."""
    split = max(each.workload.tensor_parallel for each in asked)
    edits = [edit for field in fields for edit in proposals(subject, field, split)]
    if not edits:
        return []
    found = figures(subject, asked, as_changes(subject, [{}, *edits]))
    grown = found.parameters[1:] / subject.parameters
    gain = 1 - beyond_size(gains(asked, found), grown)
    changed = np.abs(grown - 1)
    worth = np.where((gain > LEAST_GAIN) & (changed <= tolerance), gain / (changed + FREE), 0.0)
    order = [at for at in np.argsort(-worth).tolist() if worth[at] > 0]
    kept = [
        at for field in fields for at in _front([at for at in order if field in edits[at]], field, edits, gain)[:most]
    ]
    return [edits[at] for at in sorted(kept, key=order.index)]


def _front(order: Sequence[int], field: str, edits: Sequence[Mapping[str, int]], gain: np.ndarray) -> list[int]:
    """Of the edits that decide `field`, by worth: each that gains clearly more than the ones before it."""
    kept: list[int] = []
    for at in order:
        if next(iter(edits[at])) == field and all(gain[at] > gain[other] + LEAST_GAIN for other in kept):
            kept.append(at)
    return kept
