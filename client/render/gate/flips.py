"""Two answers to one check, by two calibrations: what moved, and which verdicts flipped."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.client.render.data import dumps
from tilewise.client.render.gate.common import verdict_word
from tilewise.client.render.text import table
from tilewise.hwdb.record import Record
from tilewise.server.gate.words import change, value
from tilewise.v1.check_pb2 import CheckResponse, Comparison


class Pair(Record):
    """One comparison under the old and the new calibration."""

    old: Comparison
    new: Comparison

    @property
    def flips(self) -> bool:
        return self.old.verdict != self.new.verdict


def paired(old: CheckResponse, new: CheckResponse) -> list[Pair]:
    """Comparisons of the same request, which stand in the same order."""
    return [Pair(*both) for both in zip(old.comparisons, new.comparisons, strict=True)]


def to_text(pairs: Sequence[Pair], old: str, new: str) -> str:
    header = ("config", "GPU", "workload", "metric", "limit", old, new, "change", "verdict")
    lines = [table(header, [_row(pair) for pair in pairs], right=(5, 6, 7))] if pairs else []
    return "\n".join([*lines, f"{sum(pair.flips for pair in pairs)} of {len(pairs)} verdicts flip"]) + "\n"


def _row(pair: Pair) -> tuple[str, ...]:
    old, new = pair.old, pair.new
    moved = change(new.head / old.head) if old.head and new.head else "-"
    values = (value(each.metric, each.head) if not each.HasField("error") else "-" for each in (old, new))
    verdict = verdict_word(new) if not pair.flips else f"{verdict_word(old)} -> {verdict_word(new)}"
    return (new.path, new.gpu, new.workload, new.metric, new.limit, *values, moved, verdict)


def to_json(pairs: Sequence[Pair], old: str, new: str) -> str:
    rows = [
        {
            "path": pair.new.path, "gpu": pair.new.gpu, "workload": pair.new.workload, "metric": pair.new.metric,
            "limit": pair.new.limit, "old": pair.old.head, "new": pair.new.head, "old_verdict": verdict_word(pair.old),
            "new_verdict": verdict_word(pair.new), "flips": pair.flips,
        }
        for pair in pairs
    ]  # fmt: skip
    return dumps({"old": old, "new": new, "flip_count": sum(pair.flips for pair in pairs), "comparisons": rows})
