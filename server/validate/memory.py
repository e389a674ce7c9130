"""Tables of memory-bound kernels: by rows x width, by MiB, by bytes moved, or as a bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.hwdb.kernels.memory import choice as memory_kernels
from tilewise.hwdb.kernels.memory import fitted as memory
from tilewise.hwdb.precision import NAMES
from tilewise.hwdb.table import ENGINES_OWN, OP_CODES, VARIANT_CODES, Floats, Ints, Kind, Residency, kernel_codes
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.sequences import Operands
from tilewise.server.validate import rules
from tilewise.server.validate.asked import Asked, Part, emitted, joined, sizes
from tilewise.server.validate.sheet import Sheet, Words, facts

POINT_NUMBERS = ("rows", "cols", "inner", "sets", "bytes_read", "bytes_written")
WIDTH = 2  # bytes of an element of bf16
MIB = 2**20


def ask(sheet: Sheet, found: list[str]) -> Asked:
    """[memory]: a kind names the kernels that one call launches ([memory_kinds])."""
    kinds, kind = facts()["memory_kinds"], sheet.text("kind")
    for name in sorted(set(kind.tolist()) - set(kinds)):
        rules.explain(found, kind == name, f"{name} is no kernel on the GPU, or none known here")
    parts = [_kind(sheet, found, name, entry) for name, entry in kinds.items()]
    return _asked(sheet, found, [part for part in parts if len(part[1])], kind, np.full(len(sheet), "bf16"))


def _kind(sheet: Sheet, found: list[str], name: str, entry: dict[str, Any]) -> Part:
    ours = [row for row in rules.usable(found).tolist() if sheet.text("kind")[row] == name]
    rows = np.array(ours, np.int64)
    if not ours:
        return joined([])
    extent = np.array([_extent(entry["case"], case) for case in sheet.text("case")[rows].tolist()])
    return emitted(rows, lambda e: _launch(e, name, entry, extent[:, 0], extent[:, 1]))


def _launch(e: Emitter, name: str, entry: dict[str, Any], rows: Floats, cols: Floats) -> None:
    """The kernels of one call over rows x cols."""
    residency = np.full(len(rows), int(Residency.WARM)) if entry["residency"] == "warm" else _rotating(rows * cols)
    for launch in entry["launches"]:
        read, written, recent = (
            Operands.of(launch.get(side, "")).bytes(rows, cols, rows * cols, WIDTH) + 0 * rows
            for side in ("read", "written", "recent")
        )
        e.add(
            name, "forward", Kind.MEMORY, op=OP_CODES[launch["op"]], variant=VARIANT_CODES[launch.get("variant", "")],
            precision=NAMES[launch.get("precision", "bf16")], residency=sizes(residency), rows=sizes(rows), cols=sizes(cols),
            bytes_read=sizes(read), bytes_written=sizes(written), recent_bytes=sizes(recent),
            special=sizes(launch.get("special", 0) * rows * cols),
        )  # fmt: skip


def _rotating(elements: Floats) -> Ints:
    """Whether inputs that rotate are still in L2 when their turn comes again."""
    rule = facts()["memory_rotation"]
    sets = np.clip(np.floor(rule["bytes"] / (elements * rule["bytes_per_element"])), 1, rule["most"])
    warm = (sets == 1) | ((sets + 1) * elements * WIDTH < memory.WARM_BYTES)
    return np.where(warm, int(Residency.WARM), int(Residency.REUSED))


def _extent(case: str, text: str) -> tuple[float, float]:
    """(rows, cols) of a case: "24" MiB of bf16, "4096x768", or "512x50257x4096" (rows looked up in a table)."""
    fixed = facts()["memory_sizes"]
    if case in fixed:
        return 1.0, float(fixed[case])
    numbers = [float(number) for number in text.split("x")]
    if case == "mib":
        return 1.0, numbers[0] * MIB / WIDTH
    return numbers[0], numbers[-1]


def ask_traffic(sheet: Sheet, found: list[str]) -> Asked:
    """[traffic]: a calibration's own points, with the kernels and the bytes that the memory model sees in them."""
    op, family = sheet.text("op"), Path(sheet.name).stem
    for pair in sorted(set(zip(op.tolist(), sheet.text("variant").tolist(), strict=True))):
        if not _known(family, *pair):
            rules.explain(
                found, (op == pair[0]) & (sheet.text("variant") == pair[1]), f"no kernel {'/'.join(pair)} here"
            )
    rows = rules.usable(found)
    columns: dict[str, Any] = {name: sheet.number(name, 0)[rows] for name in POINT_NUMBERS}
    columns |= {name: sheet.text(name)[rows] for name in ("op", "variant", "precision", "residency")}
    parts = [(memory.table({family: columns}), rows)] if len(rows) else []
    kinds = np.char.add(np.char.add(op, " "), sheet.text("variant"))
    return _asked(sheet, found, parts, kinds, sheet.text("precision"))


def _known(family: str, op: str, variant: str) -> bool:
    """Whether tables have a name for a measured kernel."""
    try:
        kernel_codes(memory_kernels.kernel_of(family, op, variant))
    except KeyError:
        return False
    return True


def ask_quantize(sheet: Sheet, found: list[str]) -> Asked:
    """[quantize]: read in 16 bit, written in 8, by an engine's kernel."""
    rows, moved = rules.usable(found), sheet.number("bytes_moved")
    parts = [_moved(rows, "quantize", sheet, moved * 2 / 3, moved / 3)] if len(rows) else []
    return _asked(sheet, found, parts, sheet.text("op"), np.full(len(sheet), "fp8"))


def _moved(rows: Ints, op: str, sheet: Sheet, read: Floats, written: Floats) -> Part:
    shape = [sizes(sheet.number(name)[rows]) for name in ("rows", "cols")]
    moved = sizes(read[rows]), sizes(written[rows])
    return emitted(rows, lambda e: e.memory(op, op, shape[0], shape[1], *moved, library=ENGINES_OWN))


def ask_bandwidth(sheet: Sheet, found: list[str]) -> Asked:
    """[bandwidth]: BabelStream on arrays of its default size; the time is bytes over the bandwidth told."""
    tests, name = facts()["bandwidth_tests"], sheet.text("test")
    rules.explain(found, ~np.isin(name, list(tests)), "no test of a kernel on this GPU's own memory")
    rows = rules.usable(found)
    moved = np.full(len(sheet), np.nan)
    parts = []
    for row in rows.tolist():
        op, reads, writes = tests[str(name[row])]
        size = 8.0 * tests["elements"]  # doubles
        moved[row] = (reads + writes) * size
        parts.append(emitted(np.array([row]), _plain(op, tests["elements"], reads * size, writes * size)))
    derived = moved / (1e9 * sheet.number("gbps"))
    return _asked(sheet, found, parts, name, np.full(len(sheet), "fp64"), derived)


def _plain(op: str, elements: int, read: float, written: float) -> Any:
    return lambda e: e.memory(op, op, 1, elements, read, written)


def _asked(
    sheet: Sheet,
    found: list[str],
    parts: Sequence[Part],
    kind: Words,
    precision: Words,
    derived_s: Floats | None = None,
) -> Asked:
    groups = {"operator": kind, "precision": precision, "residency": sheet.text("residency")}
    return Asked.of(sheet, found, parts, groups, derived_s=derived_s)
