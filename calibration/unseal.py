"""From a calibration back to the points of a run, so that later runs can be sealed together with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewise.calibration.gemm_plan import Gemm
from tilewise.calibration.naming import COLUMNS as NAME_COLUMNS
from tilewise.calibration.naming import UNNAMED_KEYS
from tilewise.calibration.seal import COPIED, Row, read_rows, write_rows
from tilewise.hwdb.calibration import Calibration

TAKEN = (
    "sku", "production", "script", "stack", "gpu", "budget_s", "used_s", "ranks", "started", "wanted_clock_hz", "dropped",
    "others",
)  # fmt: skip


def unseal(calibration: Calibration, into: Path) -> Path:
    """Write the points of a calibration to the folder `into` as one run, however many machines they are of."""
    source, families = calibration.measured(), calibration.card["families"]
    names = {row["id"]: row["name"] for row in read_rows(source / "kernels.csv")}
    into.mkdir(parents=True)
    census = read_rows(source / "census.csv")
    named = _named("gemm", Gemm._fields, census, names)
    for family, about in families.items():
        rows = read_rows(source / f"{family}.csv")
        named += _named(family, [column for column in about["key"] if column not in UNNAMED_KEYS], rows, names)
        write_rows(into / f"{family}.csv", [column for column in rows[0] if column != "kernel"], rows)
    write_rows(into / "names.csv", NAME_COLUMNS, named)
    for name in ("failures.csv", *COPIED):
        if (source / name).exists():
            shutil.copy(source / name, into / name)
    keys = {family: about["key"] for family, about in families.items()}
    card = {key: calibration.card[key] for key in TAKEN if key in calibration.card}
    (into / "run.json").write_text(json.dumps({**card, "keys": keys}))
    return into


def _named(family: str, shown: Sequence[str], rows: Sequence[Row], names: Mapping[str, str]) -> list[Row]:
    """The kernels' names by the parts of a key on which they depend."""
    known = [row for row in rows if row["kernel"] in names]
    return [
        {"family": family, "key": "/".join(row[column] for column in shown), "kernel": names[row["kernel"]]}
        for row in known
    ]
