"""The free wins of a configuration, and the nearest good value of a size among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.edits import Edit, single_edits
from tilewise.server.gate.words import change as percent
from tilewise.server.workload import Workload

MOST = 8  # searches for a fix in one check, some 50 ms each; what lies beyond is left to `tilewise recommend`


@dataclass(slots=True)
class Cures:
    """Answers are kept; beyond MOST no more fixes are searched, in the order of the request, so that answers never vary."""

    _known: dict[tuple[object, ...], Sequence[Edit]] = field(default_factory=dict)
    _searched: int = 0

    def of(self, text: str, gpu: Gpu, workload: Workload, fields: Sequence[str]) -> tuple[str, str]:
        """(the size to change, the fix in one sentence); empty where none is known to help."""
        if (text, gpu.sku.name, workload, *fields) not in self._known:
            if self._searched == MOST:
                return "", ""
            self._searched += 1
        sure = [edit for edit in self.edits(text, gpu, workload, fields) if edit.high < 1]
        return told(min(sure, key=lambda each: each.time_ratio)) if sure else ("", "")

    def edits(self, text: str, gpu: Gpu, workload: Workload, fields: Sequence[str] = ()) -> Sequence[Edit]:
        """The best free win of each size (none named: of all); nothing for what cannot be read or run."""
        key = text, gpu.sku.name, workload, *fields
        if key not in self._known:
            try:
                self._known[key] = single_edits(text, {}, workload, gpu, fields=fields, most=1)
            except TilewiseError:
                self._known[key] = ()
        return self._known[key]


def told(edit: Edit) -> tuple[str, str]:
    """The size that is decided, and the decision with its gain in one sentence."""
    bounds = f"{percent(edit.low).removesuffix(' %')} to {percent(edit.high)}"
    also = "".join(f", {name} {size}" for name, size in edit.sizes.items() if name != edit.field)
    return edit.field, (
        f"{edit.field} {edit.before} -> {edit.after}{also}: {percent(edit.time_ratio)} step time ({bounds}), "
        f"{edit.parameter_change:+,} parameters"
    )
