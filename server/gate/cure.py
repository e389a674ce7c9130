"""The nearest good value of a size, with its gain: a free win of server.advise.edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.edits import single_edits
from tilewise.server.gate.words import change as percent
from tilewise.server.workload import Workload

MOST = 8  # searches of one check, some 50 ms each; what lies beyond is left to `tilewise recommend`


@dataclass(slots=True)
class Cures:
    """Answers are kept; beyond MOST searches none is made, in the order of the request, so that answers never vary."""

    _known: dict[tuple[object, ...], tuple[str, str]] = field(default_factory=dict)

    def of(self, text: str, gpu: Gpu, workload: Workload, fields: Sequence[str]) -> tuple[str, str]:
        """(the size to change, the fix in one sentence); empty where none is known to help."""
        key = text, gpu.sku.name, workload, *fields
        if key not in self._known:
            self._known[key] = _best(text, gpu, workload, fields) if len(self._known) < MOST else ("", "")
        return self._known[key]


def _best(text: str, gpu: Gpu, workload: Workload, fields: Sequence[str]) -> tuple[str, str]:
    try:
        edits = single_edits(text, {}, workload, gpu, fields=fields, most=1)
    except TilewiseError:
        return "", ""
    sure = [edit for edit in edits if edit.high < 1]
    if not sure:
        return "", ""
    edit = min(sure, key=lambda each: each.time_ratio)
    bounds = f"{percent(edit.low).removesuffix(' %')} to {percent(edit.high)}"
    also = "".join(f", {name} {size}" for name, size in edit.sizes.items() if name != edit.field)
    return edit.field, (
        f"{edit.field} {edit.before} -> {edit.after}{also}: {percent(edit.time_ratio)} step time ({bounds}), "
        f"{edit.parameter_change:+,} parameters"
    )
