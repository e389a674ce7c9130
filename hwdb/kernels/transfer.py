"""Carry-over: an operator that nobody published for this GPU, from a measured sibling by the ratio of both rooflines.

time = sibling's fitted time x roofline here / roofline there, less what that misses at the median; so too a format that was not
measured, from one that was. Both were measured where both sides are known (transfer.toml, made by
scripts/research/measure_transfer.py): the interval is widened by the rest. The trust is `datasheet`, but `published` where
others timed that very kernel on this generation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb import packaged
from tilewise.hwdb.kernels import clock, roofline
from tilewise.hwdb.kernels.attention.choice import backend
from tilewise.hwdb.kernels.tiles import ELEMENT_BYTES
from tilewise.hwdb.kinds import KINDS
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, VARIANT_CODES, VARIANTS, Floats, Ints, Kind, OperatorTable, Phase
from tilewise.hwdb.times import State, Times, Trust, merge

NORMS = {OP_CODES[f"{norm}{back}"]: f"norm{back}" for norm in ("rmsnorm", "layernorm") for back in ("", "_backward")}
SCALED = ("time_s", "compute_s", "memory_s", "special_s", "launch_s", "padding_s", "wave_s", "alignment_s")


def predict(table: OperatorTable, sibling: str, sku: Sku, state: State, least: Trust = Trust.MEASURED) -> Times:
    """Times of rows of one kind, carried over from `sibling` (a SKU name; "" for none: the roofline answers).

    What the sibling refuses, or knows by less than `least`, is answered by the roofline here.
    """
    rough = roofline.predict(table, {}, sku, state)
    if not sibling or sibling == sku.name:
        return rough
    there = _there(sibling)
    fitted = there.predict(table, State.BURST)
    rows = np.flatnonzero(~fitted.refused & ~rough.refused & ((fitted.trust >= least) | np.isfinite(fitted.distance)))
    if not len(rows):
        return rough
    some, known, own = table.select(rows), fitted.trust[rows] >= least, rough.select(rows)
    here = own if state is State.BURST else roofline.predict(some, {}, sku, State.BURST)
    scaled = _own(fitted.select(rows), own, here, some, there.sku, sku, least)
    # far from what was measured there the surer of the two answers
    better = np.flatnonzero(known | (least is Trust.MEASURED) & _surer(scaled, own))
    rest = np.delete(np.arange(len(table)), rows[better])
    carried = clock.settled(some.select(better), scaled.select(better), sku, state)
    return merge(len(table), [(rest, rough.select(rest)), (rows[better], carried)])


def _surer(one: Times, other: Times) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = one.high_s / one.low_s < other.high_s / other.low_s
    return found


def in_format(table: OperatorTable, measured: Callable[[OperatorTable], Times], sku: Sku, state: State) -> Times:
    """Times of products in a format that was not measured here, from `measured` ones in 16 bit by the ratio of both rooflines."""
    narrow = ELEMENT_BYTES[table.precision]
    twin = replace(
        table, precision=np.full(len(table), int(Precision.BF16)), bytes_read=table.bytes_read * 2.0 / narrow
    )
    rough, wide = (roofline.predict(rows, {}, sku, state) for rows in (table, twin))
    scaled = _scaled(
        measured(twin),
        rough.time_s / wide.time_s,
        ["gemm", "grouped_gemm"],
        (table.kind != Kind.GEMM.value).astype(np.int64),
        sku,
    )
    return replace(scaled, refusal=rough.refusal, refusals=rough.refusals)


def _own(fitted: Times, rough: Times, here: Times, table: OperatorTable, there: Sku, sku: Sku, least: Trust) -> Times:
    """`fitted` scaled to this GPU, without what the sibling alone has: its kernels' names, and waves over its SMs.

    rough, here: the roofline of this GPU, and that of its bursts
    """
    mine = replace(fitted, kernel=rough.kernel, kernel_names=(), tiles=rough.tiles, waves=rough.waves)
    names, which = _told(table, sku)
    ratio = ratios(table, sku, there, here)
    if least is Trust.MEASURED:
        off = _of("bias", names, which, sku, mine.time_s * ratio)
        return _scaled(mine, ratio * np.exp(-off), names, which, sku)
    return _possible(_scaled(mine, ratio, names, which, sku), here.low_s)


def _told(table: OperatorTable, sku: Sku) -> tuple[list[str], Ints]:
    """The `narrowed` words of a table, each once, and which is each row's."""
    columns = (table.kind, table.phase, table.op, table.variant, backend(table))
    _, first, which = np.unique(
        np.ravel_multi_index(columns, (64, 64, 512, 512, 512)), return_index=True, return_inverse=True
    )
    return narrowed(table.select(first), sku), which


def _scaled(fitted: Times, ratio: Floats, names: list[str], which: Ints, sku: Sku) -> Times:
    time_s = fitted.time_s * ratio
    added = unsure(names, which, sku, time_s)
    low, high = (np.hypot(np.log(bound / fitted.time_s), added) for bound in (fitted.low_s, fitted.high_s))
    timed = np.array([facts()["timed"].get(name, {}).get(sku.generation, np.inf) for name in names])[which]
    seen = (time_s >= timed) & (fitted.trust == Trust.MEASURED.value)
    return replace(
        fitted,
        **{name: getattr(fitted, name) * ratio for name in SCALED},
        low_s=time_s * np.exp(-low),
        high_s=time_s * np.exp(high),
        trust=np.where(seen, int(Trust.PUBLISHED), int(Trust.DATASHEET)),
    )


def _possible(times: Times, least_s: Floats) -> Times:
    """`times` with no bound below the roofline's own: what is carried from others' bursts knows no ceiling."""
    middle = np.maximum(times.time_s, least_s)
    return replace(
        times, time_s=middle, low_s=np.maximum(times.low_s, least_s), high_s=np.maximum(times.high_s, middle)
    )


def ratios(table: OperatorTable, sku: Sku, there: Sku, here: Times | None = None) -> Floats:
    """Roofline time here over roofline time there, by row; here: that of this GPU's bursts, where it is known already."""
    ours = roofline.predict(table, {}, sku, State.BURST) if here is None else here
    found: Floats = ours.time_s / roofline.predict(table, {}, there, State.BURST).time_s
    return found


def words(table: OperatorTable) -> list[str]:
    """Which of the measured errors of a carry-over stands for each row."""
    return [
        spreads[phase % len(spreads)]
        for spreads, phase in (
            (KINDS[Kind(kind)].spreads, phase)
            for kind, phase in zip(table.kind.tolist(), table.phase.tolist(), strict=True)
        )
    ]


def narrowed(table: OperatorTable, sku: Sku) -> list[str]:
    """`words`, but of torch's own kernel where that is known of the generation."""
    return [mine if knows(mine, sku) else word for mine, word in zip(own(table), words(table), strict=True)]


def own(table: OperatorTable) -> list[str]:
    """Torch's kernel of each row: of an attention its library, of a norm whether inductor made it; "" for other kernels."""
    columns = (table.kind, table.phase, table.op, table.variant, backend(table))
    return [
        f"{VARIANTS[library]}_{Phase(phase).name.lower()}" if kind == Kind.ATTENTION.value
        else NORMS[op] + "_compiled" * (variant == VARIANT_CODES["compiled"]) if kind == Kind.MEMORY.value and op in NORMS
        else ""
        for kind, phase, op, variant, library in zip(*(column.tolist() for column in columns), strict=True)
    ]  # fmt: skip


def knows(word: str, sku: Sku) -> bool:
    """Whether the carry-over of this kernel to the SKU's generation was measured."""
    return sku.generation in facts()["error"].get(word, {})


def error(word: str, sku: Sku) -> float:
    """What a carry-over to a SKU's generation adds to the half-width of log(time): 90 % of its errors, both sides known.

    Where they are known for no GPU of the generation, the largest of the others. Of short and long kernels the largest.
    """
    return float(max(_known("error", word, sku)))


def unsure(names: list[str], which: Ints, sku: Sku, time_s: Floats) -> Floats:
    """`error` by row, of kernels that take as long as `time_s`; which: index into `names`."""
    return _of("error", names, which, sku, time_s)


def _of(section: str, names: list[str], which: Ints, sku: Sku, time_s: Floats) -> Floats:
    """By row the entry of a section for its word: lines over log(time) between `knots_s`."""
    found, knots = np.zeros(len(which)), np.log(facts()["knots_s"])
    for at, word in enumerate(names):
        rows = which == at
        found[rows] = np.interp(np.log(time_s[rows]), knots, np.resize(_known(section, word, sku), len(knots)))
    return found


def _known(section: str, word: str, sku: Sku) -> Floats:
    """An entry, one number or one a knot; of a generation that is not there no bias, and the largest error of the others."""
    known: dict[str, Any] = facts()[section].get(word, {})
    if sku.generation in known:
        return np.atleast_1d(np.array(known[sku.generation], float))
    if section == "bias" or not known:
        return np.zeros(1)
    size = len(facts()["knots_s"])
    found: Floats = np.max([np.resize(one, size) for one in known.values()], axis=0)
    return found


@cache
def facts() -> dict[str, Any]:
    return packaged.toml("tilewise.hwdb.kernels", "transfer.toml")


@cache
def _there(sibling: str) -> Any:
    from tilewise.hwdb.database import Database

    return Database.packaged().gpu(sibling)
