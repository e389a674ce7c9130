"""Measure how far a carry-over goes wrong: published times of one GPU, by the ratio of both rooflines, against another's.

    python scripts/research/measure_transfer.py FOLDER [--write]

FOLDER holds gemm.csv, attention.csv, moe.csv, memory_bound_ops.csv and collective.csv, and a folder cudnn-frontend. Both sides are
others' times of one shape by one engine (kernels differ between generations: that is part of the error), or our model of
torch's kernels here and their published times there (torch_kernels.py). --write puts what is missed where the kernel models
read it (hwdb/kernels/transfer.toml); `python scripts/docs measure_transfer.table` writes the page.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch_kernels
import transfer_file
from msgspec.structs import replace

from tilewise.calibration.published import points, rows
from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels import transfer
from tilewise.hwdb.kernels.collective.fitted import OPERATIONS
from tilewise.hwdb.kernels.gemm import fitted as gemm
from tilewise.hwdb.kernels.learning.regression import replayed_s
from tilewise.hwdb.kernels.memory import fitted as memory
from tilewise.hwdb.kernels.software import Origin, Software
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.table import OP_CODES, VARIANT_CODES, Kind, Label, Layout, OperatorTable, Phase, table_from_columns
from tilewise.hwdb.times import State

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "h100-sxm5-80gb"
KIN = {"mi300x": "mi355x", "mi325x": "mi355x"}  # GEMM alone, in the one format that both have ceilings and tables of
TARGETS = ("a100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "gb200-186gb", "b300-sxm-270gb", "gb300-279gb")
LEARNED = ("gemm", "attention", "moe")
LABEL = [Label(name="point", layer="", part="")]
COLLECTIVE = [OP_CODES[name] for name in OPERATIONS]
ELEMENT = np.array([FORMATS[precision].bytes for precision in Precision])
COVERAGE = 0.9


def pairs(folder: Path, target: str) -> Iterator[tuple[str, np.ndarray]]:
    """(operator, log of carried over time / published time) of every shape and engine that both GPUs have."""
    here, there = (Database.packaged().sku(name) for name in (target, SOURCE))
    for family in LEARNED:
        both = points.points(family, {name: loaded(folder, family, name) for name in (SOURCE, target)})
        if both is None:
            continue
        table = _work(both.table, both)
        ratio = transfer.ratios(table, here, there)
        engines = np.array([_engine(one) for one in both.origins])[both.software]
        keys = np.char.add(np.char.add(both.shapes, engines), both.table.skew.astype(str))
        for word in sorted(set(_words(family, table))):
            mine = np.array(_words(family, table)) == word
            yield word, _matched(keys, both.gpu, both.measured_s * np.where(both.gpu == 0, ratio, 1.0), mine)
    yield from _plain(folder, target)


def kin(folder: Path, target: str, source: str) -> np.ndarray:
    """log(carried over / published) of products in fp8 by blocks."""
    skus = [Database.packaged().sku(name) for name in (target, source)]
    both = points.points("gemm", {name: loaded(folder, "gemm", name) for name in (source, target)})
    seconds = both.measured_s * np.where(both.gpu == 0, transfer.ratios(_work(both.table, both), *skus), 1.0)
    software = Software.listed(both.origins)
    keys = np.char.add(both.shapes, np.array(software.names)[both.software])
    return _matched(keys, both.gpu, seconds, (software.column("format") == "fp8_block")[both.software])


def loaded(folder: Path, family: str, name: str) -> list[rows.Rows]:
    """A family's rows of one SKU that the models know."""
    found = rows.read(folder / f"{family}.csv", name)
    if found is None:
        return []
    return [points.only(found, points.modelled(found.family, found))]


def _engine(origin: Origin) -> str:
    """The engine with the phase and the format: what is paired."""
    phase = f"{'mla' * origin.latent} {origin.phase}"
    return f"|{phase}|{origin.engine}|{origin.format}|{'nongated' in origin.kernel}"


def _words(family: str, table: OperatorTable) -> list[str]:
    if family == "attention":
        return transfer.words(table)
    return ["gemm" if family == "gemm" else "grouped_gemm"] * len(table)


def _work(table: OperatorTable, both: points.Points) -> OperatorTable:
    """FLOPs, bytes and exponentials, which the roofline asks for and a published row does not tell."""
    precision = Software.listed(both.origins).precision[both.software]
    element = ELEMENT[precision]
    m, n, k = table.m, table.n.astype(float), table.k.astype(float)
    pairs_ = table.batch * table.heads * table.seq_q * table.seq_kv * np.where(table.phase == Phase.DECODE, 1.0, 0.5)
    fused, attention = table.op > 0, table.heads * table.seq_kv > 0
    matrices = np.where(fused, 3.0, 1.0)
    flops = np.where(attention, 4.0 * pairs_ * table.head_dim, 2 * m * n * k * matrices)
    weights = np.maximum(table.groups, 1.0) * n * k * element * matrices
    cache = 4.0 * table.batch * table.kv_heads * table.head_dim * table.seq_kv
    return replace(
        table, precision=precision, flops=flops, executed_flops=flops, special=np.where(attention, pairs_, 0.0),
        bytes_read=np.where(attention, cache, m * k * element + weights), bytes_written=np.where(attention, 0.0, 2.0 * m * n),
        output_bytes=np.full(len(m), 2.0),
    )  # fmt: skip


def _matched(keys: np.ndarray, gpu: np.ndarray, seconds: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """log(carried over / published) of the keys that both have, and the published seconds, shape (2, keys)."""
    sides = [
        {key: s for key, s in zip(keys[rows].tolist(), seconds[rows].tolist(), strict=True)}
        for rows in (mine & (gpu == 0), mine & (gpu == 1))
    ]
    common = sorted(sides[0].keys() & sides[1].keys())
    here, there = (np.array([side[key] for key in common]) for side in sides)
    return np.stack([np.log(here / there), there]) if common else np.zeros((2, 0))


def _plain(folder: Path, target: str) -> Iterator[tuple[str, np.ndarray]]:
    """Casts by bytes; collectives by operation, GPUs and size."""
    here, there = (Database.packaged().sku(name) for name in (target, SOURCE))
    found = [rows.read(folder / "memory_bound_ops.csv", name) for name in (SOURCE, target)]
    if all(found):
        yield "cast", _casts(found, here, there)
    found = [rows.read(folder / "collective.csv", name) for name in (SOURCE, target)]
    sides = [points.collectives(one) for one in found]
    op, ranks, size, _ = (np.concatenate(some) for some in zip(*sides, strict=True))
    table = table_from_columns(
        LABEL, len(op), len(op),
        {"kind": np.full(len(op), int(Kind.COLLECTIVE)), "op": np.array([COLLECTIVE[int(one)] for one in op]), "ranks": ranks, "message_bytes": size},
    )  # fmt: skip
    ratio = transfer.ratios(table, here, there)
    gpu = np.repeat([0, 1], [len(side[0]) for side in sides])
    seconds = np.concatenate([side[3] for side in sides]) * np.where(gpu == 0, ratio, 1.0)
    keys = np.array([f"{a}/{b}/{c}" for a, b, c in zip(op, ranks, size, strict=True)])
    yield "collective", _matched(keys, gpu, seconds, np.ones(len(op), bool))


def _casts(found, here, there):  # type: ignore[no-untyped-def]
    size = np.concatenate([one.number("bytes_moved") for one in found])
    gpu = np.repeat([0, 1], [len(one) for one in found])
    table = table_from_columns(
        LABEL, len(size), len(size),
        {"kind": np.full(len(size), int(Kind.MEMORY)), "op": np.full(len(size), OP_CODES["quantize"]), "rows": np.concatenate([one.number("rows") for one in found]),
         "cols": np.concatenate([one.number("cols") for one in found]), "bytes_read": size * 2 / 3, "bytes_written": size / 3},
    )  # fmt: skip
    seconds = np.concatenate([one.number("time_us") for one in found]) * np.where(
        gpu == 0, transfer.ratios(table, here, there), 1.0
    )
    keys = np.concatenate([np.char.add(one.shapes, one.text("impl")) for one in found])
    return _matched(keys, gpu, seconds, np.ones(len(size), bool))


def layouts() -> np.ndarray:
    """log(measured gradient / forward product of the same sizes by the model) on our own measured GPU, whole tiles."""
    gpu = Database.packaged().gpu(SOURCE)
    columns = gpu.calibration.measurements("gemm")
    aligned = (columns["m"] % 64 == 0) & (columns["n"] % 64 == 0) & (columns["k"] % 64 == 0)
    use = (columns["state"] == "burst") & (columns["dtype"] == "bf16") & (columns["kind"] != "fwd") & aligned
    some = {name: values[use] for name, values in columns.items()}
    table = gemm.table({"gemm": some})
    forward = replace(table, layout=np.full(len(table), int(Layout.FORWARD)))
    predicted = gpu.predict(forward, State.BURST).time_s
    measured_s = gemm.measured_s({"gemm": some})
    return _finite(predicted, measured_s)


def _finite(predicted_s: np.ndarray, measured_s: np.ndarray) -> np.ndarray:
    """log(predicted / measured) of what is answered, and the measured seconds, shape (2, points)."""
    off = np.log(predicted_s / measured_s)
    return np.stack([off, measured_s])[:, np.isfinite(off)]


def engines(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """log(our measured model of torch's kernels / published time of the engine that stands in for them), on the H100."""
    gpu = Database.packaged().gpu(SOURCE)
    for family, mark in (("gemm", "sglang_torch_linear"), ("attention", "fa3")):
        both = points.points(family, {SOURCE: loaded(folder, family, SOURCE)})
        use = np.array([mark in one.kernel and set(one.formats) == {"bf16"} for one in both.origins])[both.software]
        some = both[use]
        table = replace(some.table, precision=np.full(len(some.measured_s), int(Precision.BF16)))
        predicted_s = gpu.predict(_work(table, some), State.BURST).time_s
        for word in sorted(set(_words(family, some.table))):
            mine = np.array(_words(family, some.table)) == word
            yield f"engine_{word}", _finite(predicted_s[mine], some.measured_s[mine])


def flash(folder: Path, target: str = "a100-sxm-80gb") -> Iterator[tuple[str, np.ndarray]]:
    """Flash-attention 2's forward, which torch runs on Ampere: our model of the H100's carried over; one engine's by another's."""
    both = points.points("attention", {target: loaded(folder, "attention", target)})
    engines = ("flash_attention", "vllm_flash_attn")
    plain = [set(one.formats) == {"bf16"} and one.phase == "forward" and not one.latent for one in both.origins]
    kernel = np.array([one.kernel if use else "" for one, use in zip(both.origins, plain, strict=True)])[both.software]
    some = both[kernel == engines[0]]
    asked = replace(some.table, variant=np.full(len(some.measured_s), VARIANT_CODES["flash"]),
                    precision=np.full(len(some.measured_s), int(Precision.BF16)))  # fmt: skip
    yield (
        "flash_forward",
        _finite(torch_kernels.carried(_work(asked, some), Database.packaged().sku(target)), some.measured_s),
    )
    which = np.where(kernel == engines[0], 0, 1)
    yield "engine_attention_forward", _matched(both.shapes, which, both.measured_s, kernel != "")


def ours(target: str = "h200-sxm-141gb") -> np.ndarray:
    """Memory-bound kernels of the two GPUs that we measured: the H100's carried over, against held out points."""
    here = Database.packaged().gpu(target)
    held = {}
    for family in memory.MEASURED:
        columns = here.calibration.measurements(family)
        use = columns["held"].astype(bool)
        held[family] = {name: values[use] for name, values in columns.items()}
    return _finite(torch_kernels.carried(memory.table(held), here.sku), replayed_s(held))


def table(shared: Path) -> str:
    """The table of docs/published.md."""
    return page(carried(shared / "measurements"))


def carried(folder: Path) -> list[tuple[str, str, np.ndarray]]:
    """(operator, GPU, logs of carried over / published) of everything that both sides are known of."""
    found = [(word, target, off) for target in TARGETS for word, off in pairs(folder, target) if off.size]
    found += [("gemm", target, kin(folder, target, source)) for target, source in KIN.items()]
    found.append(("layout", SOURCE, layouts()))
    found.append(("memory", "h200-sxm-141gb", ours()))
    found += [(word, SOURCE, off) for word, off in engines(folder)]
    found += [(word, TARGETS[0], off) for word, off in flash(folder)]
    theirs = torch_kernels.missed(folder / "cudnn-frontend")
    return found + [(word, torch_kernels.SKUS["gb200"], off) for word, off in theirs]


def page(found: list[tuple[str, str, np.ndarray]]) -> str:
    head = [
        "| operator | GPU | pairs | bias, % | median error, % | 90 % within a factor of |",
        "|---|---|--:|--:|--:|--:|",
    ]
    return "\n".join([*head, *(line(*one) for one in sorted(found, key=lambda one: one[:2]))])


def main(folder: Path, write: bool) -> None:
    found = carried(folder)
    print(page(found))
    if write:
        place = ROOT / "hwdb" / "kernels" / "transfer.toml"
        place.write_text(transfer_file.text(found), encoding="utf-8")


def line(word: str, target: str, off: np.ndarray) -> str:
    off, _ = off
    p90 = float(np.exp(np.quantile(np.abs(off), COVERAGE)))
    return f"| {word} | {target} | {len(off)} | {100 * (np.exp(np.median(off)) - 1):+.0f} | {100 * np.median(np.abs(np.exp(off) - 1)):.0f} | {p90:.2f} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--write" in sys.argv[2:])
