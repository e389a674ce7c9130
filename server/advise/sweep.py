"""Predictions along one size or two: every point of a grid, in passes over all that share a workload but for its lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import get_annotations
from itertools import product

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Ints
from tilewise.server.advise.asked import CHUNK, Changes, each_possible
from tilewise.server.advise.subject import Subject
from tilewise.server.architecture import Architecture
from tilewise.server.deadline import check_alive
from tilewise.server.limits import check_candidates
from tilewise.server.step.predict import Shapes, predict_many
from tilewise.server.workload import LENGTHS, Workload, together

OF_WORKLOAD = tuple(name for name, kind in get_annotations(Workload).items() if kind == "int")
APART = tuple(name for name in OF_WORKLOAD if name not in LENGTHS)  # each value of which takes a pass of its own


class Axis(Record):
    """A canonical size, or one of OF_WORKLOAD, and the values it takes."""

    field: str
    values: tuple[int, ...]


class Pass(Record):
    """Points of one GPU and workload that were predicted together.

    at: their places in the grid; shapes: what was predicted of them, None where `error` says why there is none
    """

    gpu: Gpu
    workload: Workload
    at: Ints
    shapes: Shapes | None
    error: TilewiseError | None = None


def grid(axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """Every point's values, the last axis fastest. Raises InvalidInput and TooLarge before any point is made."""
    if not 1 <= len(axes) <= 2:
        raise InvalidInput(f"{len(axes)} axes: a sweep has one or two", reason="BAD_AXIS", field="axes")
    if len({axis.field for axis in axes}) < len(axes):
        raise InvalidInput(f"{axes[0].field} is given twice", reason="BAD_AXIS", field="axes")
    for axis in axes:
        if not axis.values or min(axis.values) < 1:
            raise InvalidInput(f"{axis.field} needs values of 1 or more", reason="BAD_AXIS", field="axes")
    check_candidates(int(np.prod([len(axis.values) for axis in axes], dtype=float)), "axes")
    return list(product(*(axis.values for axis in axes)))


def sweep(subject: Subject, workload: Workload, gpus: Sequence[Gpu], axes: Sequence[Axis]) -> Iterator[list[Pass]]:
    """Predicts every point on every GPU: lists of passes over at most CHUNK points that share a GPU and a workload.

    Lists of one GPU and workload, but for its lengths, follow each other in the order of the grid. A shape that cannot be is a pass of its own
    with its error. Raises as `grid`.
    """
    return predicted(subject, workload, gpus, [axis.field for axis in axes], grid(axes))


def predicted(
    subject: Subject, workload: Workload, gpus: Sequence[Gpu], names: Sequence[str], points: Sequence[tuple[int, ...]]
) -> Iterator[list[Pass]]:
    """As `sweep`, of any points: values of the sizes `names`."""
    for setting, rows in _by_workload(names, points).items():
        fixed = dict(zip([name for name in names if name in APART], setting, strict=True))
        sizes = {name: np.array([point[at] for point in points]) for at, name in enumerate(names) if name not in fixed}
        for first in range(0, len(rows), CHUNK):
            for gpu in gpus:
                yield _passes(subject, workload, fixed, gpu, sizes, rows[first : first + CHUNK])
            check_alive()


def _by_workload(names: Sequence[str], points: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Ints]:
    """Places of the points whose workloads share what is asked APART."""
    apart = [at for at, name in enumerate(names) if name in APART]
    found: dict[tuple[int, ...], list[int]] = {}
    for place, point in enumerate(points):
        found.setdefault(tuple(point[at] for at in apart), []).append(place)
    return {setting: np.array(places) for setting, places in found.items()}


def _passes(
    subject: Subject, workload: Workload, fixed: Mapping[str, int], gpu: Gpu, sizes: Changes, rows: Ints
) -> list[Pass]:
    done: list[Pass] = []
    lengths = {name: values for name, values in sizes.items() if name in LENGTHS}
    shapes = {name: values for name, values in sizes.items() if name not in LENGTHS}
    try:
        work = replace(workload, **fixed)
    except InvalidInput as error:
        return [Pass(gpu, workload, rows, None, error)]

    def use(arch: Architecture, places: Ints) -> None:
        asked = _at(work, {name: values[places] for name, values in lengths.items()})
        done.append(Pass(gpu, asked, places, predict_many(gpu, arch, asked)))

    def refuse(place: int, error: TilewiseError) -> None:
        done.append(Pass(gpu, work, np.array([place]), None, error))

    each_possible(subject, shapes, rows, use, refuse)
    return done


def _at(work: Workload, lengths: Changes) -> Workload:
    """A workload with its lengths replaced: by arrays, by plain numbers for a single point."""
    if all(len(values) == 1 for values in lengths.values()):
        return replace(work, **{name: int(values[0]) for name, values in lengths.items()})
    return together(work, lengths)
