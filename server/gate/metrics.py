"""What a budget may limit, and how sure it is."""

from __future__ import annotations

from tilewise.hwdb.record import Record


class Metric(Record):
    """unit: of server.gate.units; less: whether less is better; timed: errs as the step's time (or its reciprocal) does."""

    unit: str
    less: bool = True
    timed: bool = False


LEFT_ON_TABLE = "left_on_table"  # what the best free win would save: limited by max_left_on_table, never against a base
METRICS: dict[str, Metric] = {
    "time_s": Metric("s", timed=True),
    "tokens_per_s": Metric("tokens/s", less=False, timed=True),
    "mfu": Metric("share", less=False, timed=True),
    "memory_bytes": Metric("bytes"),
    "parameter_count": Metric("count"),
    "tile_waste": Metric("share"),
    LEFT_ON_TABLE: Metric("share"),
}
