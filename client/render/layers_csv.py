"""Predictions as CSV: a line for each kind of layer and one for the step, which they add up to; SI units in the names."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any

from tilewise.server.messages.words import word
from tilewise.v1.advisor_service_pb2 import PredictResponse
from tilewise.v1.prediction_pb2 import Trust, Wall
from tilewise.v1.report_pb2 import Layer, Step

COLUMNS = (
    "model",
    "gpu",
    "calibration",
    "layer",
    "time_s",
    "time_low_s",
    "time_high_s",
    "share",
    "wall",
    "mfu",
    "trust",
    "fits",
)


def layers_csv(answers: Iterable[PredictResponse]) -> str:
    """The table of all answers, one below the other under one line of names."""
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for answer in answers:
        writer.writerows(rows(answer))
    return text.getvalue()


def rows(answer: PredictResponse) -> Iterator[dict[str, Any]]:
    same = {"model": no_formula(answer.architecture.name), "gpu": answer.gpu.sku, "calibration": answer.gpu.calibration}
    for layer in answer.layers:
        yield {**same, "layer": layer.name, "share": layer.share, **timed(layer)}
    yield {**same, "layer": "step", "share": 1.0, "fits": str(answer.memory.fits).lower(), **timed(answer.step)}


def no_formula(text: str) -> str:
    """A name that no spreadsheet computes."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def timed(of: Layer | Step) -> dict[str, Any]:
    """The time with its bounds, what bounds it and how far to trust it; nothing where it was refused."""
    if not of.HasField("prediction"):
        return {"share": ""}
    time = of.prediction
    return {
        "time_s": time.time_s, "time_low_s": time.time_low_s, "time_high_s": time.time_high_s,
        "wall": word(Wall.DESCRIPTOR, time.wall), "mfu": of.mfu if of.HasField("mfu") else "",
        "trust": word(Trust.DESCRIPTOR, time.trust),
    }  # fmt: skip
