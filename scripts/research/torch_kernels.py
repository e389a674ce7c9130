"""Torch's own kernels on a GPU that no calibration of ours measured: cuDNN's attention and the norms of NVIDIA/cudnn-frontend.

    python scripts/research/torch_kernels.py FOLDER      FOLDER holds the tables of its benchmarks (MIT), none of which is kept here

The half of the shapes whose hash is even is fitted (measure_transfer.py puts what a carry-over from the H100 misses there into
transfer.toml); `table` judges by the other half, which nothing was chosen by.
"""

import csv
import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels import transfer
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, VARIANT_CODES, Kind, Label, OperatorTable, Phase, table_from_columns
from tilewise.hwdb.times import Times, Trust

SOURCE = "h100-sxm5-80gb"
SKUS = {"gb200": "gb200-186gb", "gb300": "gb300-279gb", "b200": "b200-sxm-180gb"}  # of a part of a file's name
ATTENTION, NORMS = "sdpa_benchmark_training__*__{}__*.csv", "norms__*__{}__*.csv"
COMPILED = {"pytorch": 0, "torch_compile": VARIANT_CODES["compiled"]}
HEAD = "| GPU | kernel | points | mean error, % | bias, % | 90 % interval covers, % | high over low, median | trust |"
Points = tuple[OperatorTable, np.ndarray, np.ndarray]  # rows, seconds, text of each shape


def points(folder: Path, name: str) -> Points:
    """Attention in bf16, and norms of torch."""
    parts = [
        made(list(rows)) for rows, made in ((_attentions(folder, name), _attention), (_norms(folder, name), _norm))
    ]
    columns, seconds, shapes = zip(*parts, strict=True)
    names = {key for one in columns for key in one}
    sizes = [len(one) for one in seconds]
    joined = {
        key: np.concatenate([one.get(key, np.zeros(size)) for one, size in zip(columns, sizes, strict=True)])
        for key in names
    }
    length = sum(sizes)
    joined |= {
        "shape": np.arange(length),
        "precision": np.full(length, int(Precision.BF16)),
        "kernels": np.ones(length),
    }
    table = table_from_columns([Label(name="point", layer="", part="")], length, length, joined)
    return table, np.concatenate(seconds), np.concatenate(shapes)


def _attentions(folder: Path, name: str) -> Iterator[dict[str, str]]:
    for row in _read(folder, ATTENTION, name):
        ordered = (row["profile_pass"], row["deterministic_bwd"]) == (
            "bwd",
            "True",
        )  # of its sums: torch asks for no order
        if row["data_type"] == "bfloat16" and not ordered:
            yield {**row, "sliding_window_size": row["sliding_window_size"] or "0"}


def _norms(folder: Path, name: str) -> Iterator[dict[str, str]]:
    for row in _read(folder, NORMS, name):
        for step in ("fwd", "bwd"):
            if row["backend"] in COMPILED and float(row[f"{step}_time_ms"] or 0):
                yield {**row, "step": step, "time_ms": row[f"{step}_time_ms"]}


def _read(folder: Path, pattern: str, name: str) -> Iterator[dict[str, str]]:
    for path in sorted(folder.glob(pattern.format(name))):
        with path.open(newline="", encoding="utf-8") as stream:
            yield from (row for row in csv.DictReader(stream) if row["success"] == "True")


def _numbers(rows: Sequence[dict[str, str]], *names: str) -> list[np.ndarray]:
    return [np.array([float(row[name]) for row in rows]) for name in names]


SIZES = ("batch_size", "num_q_heads", "num_kv_heads", "head_dim_qk", "head_dim_vo", "q_seqlen", "kv_seqlen")


def _attention(rows: Sequence[dict[str, str]]) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """FLOPs, bytes and exponentials as server/operators counts them."""
    batch, heads, kv, dim, dim_v, queries, keys = _numbers(rows, *SIZES)
    window, time_ms = _numbers(rows, "sliding_window_size", "time_ms")
    causal = np.array([row["attn_mask"] == "top_left" for row in rows])
    back = np.array([row["profile_pass"] == "bwd" for row in rows])
    reach = np.where(window > 0, np.minimum(window, keys), keys)
    pairs = np.where(
        window > 0, queries * reach - reach * (reach - 1) / 2, queries * np.where(causal, (keys + 1) / 2, keys)
    )
    work, again = 2 * batch * heads * (dim + dim_v) * pairs, 2 * batch * heads * dim * pairs
    operands = batch * (heads * queries + kv * keys) * (dim + dim_v)
    shapes = [f"attention {row['attn_mask']} {'/'.join(row[name] for name in SIZES)}" for row in rows]
    return {
        "kind": np.full(len(rows), int(Kind.ATTENTION)), "phase": np.where(back, int(Phase.BACKWARD), int(Phase.FORWARD)),
        "batch": batch, "heads": heads, "kv_heads": kv, "head_dim": dim, "head_dim_v": dim_v, "seq_q": queries, "seq_kv": keys,
        "causal": causal.astype(float), "window": window, "flops": work * np.where(back, 2, 1),
        "executed_flops": np.where(back, 2 * work + again, work), "special": batch * heads * pairs,
        "bytes_read": operands * np.where(back, 2, 1), "bytes_written": operands / 2,
    }, time_ms * 1e-3, np.array(shapes)  # fmt: skip


def _norm(rows: Sequence[dict[str, str]]) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    count, width, time_ms = _numbers(rows, "N", "C", "time_ms")
    back = np.array([row["step"] == "bwd" for row in rows], bool)
    names = [row["norm_type"].replace("_", "") + "_backward" * (row["step"] == "bwd") for row in rows]
    return {
        "kind": np.full(len(rows), int(Kind.MEMORY)), "op": np.array([OP_CODES[one] for one in names], np.int64),
        "variant": np.array([COMPILED[row["backend"]] for row in rows], np.int64), "rows": count, "cols": width,
        "bytes_read": count * width * np.where(back, 4.0, 2.0), "bytes_written": count * width * 2.0,
    }, time_ms * 1e-3, np.array([f"norm {row['N']}/{row['C']}" for row in rows], str)  # fmt: skip


def opened(shapes: Iterable[str]) -> np.ndarray:
    """Of each shape, whether it may be looked at and fitted."""
    return np.array([hashlib.sha256(shape.encode()).digest()[0] % 2 == 0 for shape in shapes], bool)


def missed(folder: Path, name: str = "gb200") -> Iterator[tuple[str, np.ndarray]]:
    """(kernel, log of carried over by the roofline alone / measured, and seconds) of the opened half, shape (2, points)."""
    table, seconds, shapes = points(folder, name)
    off = np.log(carried(table, Database.packaged().sku(SKUS[name])) / seconds)
    words = np.array(transfer.own(table))
    for word in sorted({word for word in words.tolist() if word.startswith(("cudnn", "norm"))}):
        yield word, np.stack([off, seconds])[:, (words == word) & opened(shapes) & np.isfinite(off)]


def carried(table: OperatorTable, sku: Sku) -> np.ndarray:
    there = Database.packaged().gpu(SOURCE)
    found: np.ndarray = there.predict(table).time_s * transfer.ratios(table, sku, there.sku)
    return found


def table(shared: Path) -> str:
    """Of docs/published.md: what is predicted of the half that was not opened, by kernel."""
    return "\n".join([HEAD, "|---|---|--:|--:|--:|--:|--:|---|", *judged(shared / "measurements" / "cudnn-frontend")])


def judged(folder: Path) -> Iterator[str]:
    for name, sku in SKUS.items():
        if not list(folder.glob(ATTENTION.format(name))):
            continue
        gpu = Database.packaged().gpu(sku)
        rows, seconds, shapes = points(folder, name)
        times, words = gpu.predict(rows), np.array(transfer.own(rows))
        words = np.where(rows.window > 0, np.char.replace(words, "flash_", "in a window, "), words)
        for word in sorted(set(words.tolist())):
            yield line(gpu, word, times, seconds, (words == word) & ~opened(shapes))
        yield line(gpu, "all", times, seconds, ~opened(shapes))


def line(gpu: Gpu, word: str, times: Times, seconds: np.ndarray, rows: np.ndarray) -> str:
    off = (times.time_s / seconds)[rows]
    inside = ((times.low_s <= seconds) & (seconds <= times.high_s))[rows]
    trust = "/".join(sorted({Trust(one).name.lower() for one in times.trust[rows].tolist()}))
    return (
        f"| {gpu.sku.name} | {word.replace('_', ' ')} | {rows.sum()} | {100 * np.abs(off - 1).mean():.1f} | "
        f"{100 * (np.median(off) - 1):+.1f} | {100 * inside.mean():.0f} | {np.median((times.high_s / times.low_s)[rows]):.2f} | {trust} |"
    )


if __name__ == "__main__":
    print("\n".join([HEAD, "|---|---|--:|--:|--:|--:|--:|---|", *judged(Path(sys.argv[1]))]))
