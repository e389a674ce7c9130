"""A sweep as text: a line a point (or a grid for two fields), then the cliffs with their causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewise.client.render.report import asked_line
from tilewise.client.render.text import gib, interval, parameters, percent, seconds, significant, table
from tilewise.v1.advice_pb2 import Cliff, SweepPoint, SweepRequest, SweepResponse

FEW = 60  # points that are listed; of more only every so many, and those at the cliffs
WHAT = {"time": "time", "mfu": "MFU"}


def sweep_text(request: SweepRequest, answer: SweepResponse, show: str) -> str:
    """The whole answer; ends with a line break."""
    fields = [axis.field for axis in request.axes]
    sections = []
    for gpu in dict.fromkeys(point.gpu for point in answer.points):
        points = sorted((p for p in answer.points if p.gpu == gpu), key=lambda p: tuple(p.values))
        steep = [cliff for cliff in answer.cliffs if cliff.gpu == gpu]
        sections.append(f"{sweep_title(request)}, on {gpu}")
        if len(fields) == 2:
            sections.append(grid(fields, points, show))
            if not all(point.fits for point in points if point.HasField("prediction")):
                sections.append("(in brackets: what does not fit into the GPU's memory)")
        else:
            kept = listed(points, steep)
            sections.append(point_table(fields[0], kept))
            if len(kept) < len(points):
                sections.append(
                    f"{len(kept)} of {len(points):,} points are listed; --format json has all, --plot shows them"
                )
        sections.append(cliff_table(steep))
        sections += refusals(points)
    return "\n\n".join(sections) + "\n"


def sweep_title(request: SweepRequest) -> str:
    """Model, workload and what is varied."""
    name = request.model.name.rpartition("/")[2].removesuffix(".json").removesuffix(".toml")
    varied = {axis.field for axis in request.axes}
    return f"{name}, {asked_line(request.workload, varied)}: {' and '.join(axis.field for axis in request.axes)}"


def listed(points: Sequence[SweepPoint], steep: Sequence[Cliff]) -> list[SweepPoint]:
    """Few points are all listed; of many every so many, and both sides of every cliff."""
    if len(points) <= FEW:
        return list(points)
    every = -(-len(points) // FEW)
    edges = {value for cliff in steep for value in (cliff.good_value, cliff.bad_value)}
    return [point for at, point in enumerate(points) if at % every == 0 or point.values[0] in edges]


def point_table(field: str, points: Sequence[SweepPoint]) -> str:
    header = (field, "step", "tokens/s", "MFU", "parameters", "memory")
    return table(header, [point_row(point) for point in points], right=range(6))


def point_row(point: SweepPoint) -> tuple[str, ...]:
    value = str(point.values[0])
    if not point.HasField("prediction"):
        return value, "refused", "-", "-", "-", "-"
    time = point.prediction
    size, room = parameters(point.parameter_count), gib(point.memory_bytes) + ("" if point.fits else ", too much")
    rate, mfu = significant(point.tokens_per_s), percent(point.mfu)
    return value, interval(time.time_low_s, time.time_s, time.time_high_s), rate, mfu, size, room


def grid(fields: Sequence[str], points: Sequence[SweepPoint], show: str) -> str:
    """Rows: the first field; columns: the second."""
    rows, columns = (sorted({point.values[at] for point in points}) for at in (0, 1))
    known = {tuple(point.values): figure(point, show) for point in points}
    header = (f"{WHAT[show]}: {fields[0]} \\ {fields[1]}", *map(str, columns))
    cells = [(str(row), *(known.get((row, column), "-") for column in columns)) for row in rows]
    return table(header, cells, right=range(len(header)))


def figure(point: SweepPoint, show: str) -> str:
    if not point.HasField("prediction"):
        return "-"
    text = percent(point.mfu) if show == "mfu" else seconds(point.prediction.time_s)
    return text if point.fits else f"({text})"


def cliff_table(steep: Sequence[Cliff]) -> str:
    """Cliffs of one field, cause and height are one line: the first, and how many there are."""
    if not steep:
        return "no cliffs: no step along these values costs more than the error of the prediction"
    rows = [
        (c.field, f"{c.good_value} -> {c.bad_value}", f"{c.time_ratio:.2f}", str(len(alike)), c.cause, c.message)
        for alike in groups(steep)
        for c in alike[:1]
    ]
    return table(
        ("cliff", "good -> bad", "time for the same work", "such", "cause", "why the good value is faster"),
        rows,
        right=(2, 3),
    )


def groups(steep: Sequence[Cliff]) -> list[list[Cliff]]:
    """Cliffs that are alike in field, cause and (to a tenth) height, the highest first."""
    found: dict[tuple[str, str, float], list[Cliff]] = {}
    for cliff in steep:
        found.setdefault((cliff.field, cliff.cause, round(cliff.time_ratio, 1)), []).append(cliff)
    return list(found.values())


def refusals(points: Sequence[SweepPoint]) -> Iterator[str]:
    """Each reason once, with how many points it took."""
    reasons: dict[str, list[SweepPoint]] = {}
    for point in points:
        if point.HasField("error"):
            reasons.setdefault(point.error.message, []).append(point)
    for message, refused in list(reasons.items())[:3]:
        first = ", ".join(map(str, refused[0].values))
        yield f"refused: {len(refused)} points, as {first}: {message}"
    if len(reasons) > 3:
        yield f"refused: {sum(map(len, list(reasons.values())[3:]))} more points for other reasons; --format json has each"
