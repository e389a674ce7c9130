"""The measured tables inside the public package aiconfigurator-core (Apache-2.0), as rows of a plain table.

pip install 'tilewise[published]'. The package's code is not imported, its parquet files are read where they lie. Of its
millions of rows a calibration takes the shapes of sample.npz alone: the rest of the package stays unseen, to judge by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.calibration.published.rows import Column, Rows, facts, kept, shape_texts
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotAvailable

PACKAGE = "aiconfigurator-core"
TABLES = {  # file -> family
    "gemm/*/*/gemm_perf.parquet": "gemm",
    "attention/*/*/context_attention_perf.parquet": "attention",
    "attention/*/*/generation_attention_perf.parquet": "attention",
    "mla/*/*/context_mla_perf.parquet": "mla",
    "mla/*/*/generation_mla_perf.parquet": "mla",
    "moe/*/*/moe_perf.parquet": "moe",
    "quantize/*/*/scale_matrix_perf.parquet": "quantize",
    "comm/nccl/*/nccl_perf.parquet": "collective",
}
DIGITS = 5  # significant digits of a time
UNFILLED = ("bfloat16", "fp8", "fp8_block")  # weights that vLLM's GEMM collector leaves empty or constant
FORMATS = ("bfloat16", "fp8", "fp8_block", "nvfp4")


def load(sku: str, *, everything: bool = False) -> list[Rows]:
    """All families of a SKU. everything: all shapes, not the sampled ones, and windows (to judge by, never to fit).

    Raises NotAvailable where the package or the SKU's tables are missing, or the package is of another version.
    """
    folder = _folder(sku)
    found = []
    for pattern, family in TABLES.items():
        for path in sorted(folder.glob(pattern)):
            columns = _columns(family, path, sku)
            rows = np.ones(len(columns["time_us"]), bool) if everything else sampled(family, columns, sku)
            found.append(kept(family, {name: column[rows] for name, column in columns.items()}, sku))
    return found


def _folder(sku: str) -> Path:
    systems = facts()["systems"]
    if sku not in systems:
        message = f"{PACKAGE} holds no tables of {sku}; it holds {', '.join(systems)}"
        raise NotAvailable(message, reason="NOT_PUBLISHED", field="sku")
    wanted = facts()["source"]["aiconfigurator"]["version"]
    try:
        there = version(PACKAGE)
    except PackageNotFoundError:
        there = ""
    spec = find_spec("aiconfigurator_core") if there == wanted else None
    if spec is None or spec.origin is None:
        message = f"needs {PACKAGE} {wanted}, found {there or 'none'}: pip install 'tilewise[published]'"
        raise NotAvailable(message, reason="PACKAGE_MISSING", field="from")
    return Path(spec.origin).parent / "systems" / "data" / str(systems[sku])


def _columns(family: str, path: Path, sku: str) -> dict[str, Column]:
    """One parquet file in the columns of a plain table."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    raw = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    *_, engine, release, _ = path.parts
    columns: dict[str, Column] = {
        **CONVERT[family](raw, f"{engine} {release}"),
        "time_us": _rounded(raw["latency"].astype(float) * 1e3),
        "gpu": np.full(len(table), sku),
        "source": np.full(len(table), f"{PACKAGE} {facts()['source']['aiconfigurator']['version']}"),
    }
    if family == "attention":
        columns["notes"] = np.where(_implausible(columns, sku), "IMPLAUSIBLE", columns["notes"])
    use = columns.pop("use") if "use" in columns else np.ones(len(table), bool)
    use &= columns["time_us"] > 0
    return {name: column[use] for name, column in columns.items()}


def _gemm(raw: dict[str, Any], engine: str) -> dict[str, Column]:
    dtype = raw["gemm_dtype"].astype(str)
    unfilled = np.isin(dtype, UNFILLED) & engine.startswith("vllm")
    return {
        "m": raw["m"], "n": raw["n"], "k": raw["k"], "dtype": dtype, "use": np.isin(dtype, FORMATS),
        "software": _named(engine, [f"kernel {name}" for name in raw["kernel_source"]]),
        "notes": np.where(unfilled, "W_UNINIT_OR_CONST", ""),
    }  # fmt: skip


def _attention(raw: dict[str, Any], engine: str) -> dict[str, Column]:
    decode = str(raw["op_name"][0]).startswith("generation")
    keys = raw["isl"] + raw["step"]
    stored, dtype = raw["kv_cache_dtype"].astype(str), raw["attn_dtype"].astype(str)
    flagged = np.full(len(keys), "KV_FP8" if not decode else "")
    return {
        "phase": np.full(len(keys), "decode" if decode else "fwd_context"), "batch": raw["batch_size"],
        "q_heads": raw["num_heads"], "kv_heads": raw["num_key_value_heads"], "head_dim": raw["head_dim"],
        "seq_q": np.ones_like(keys) if decode else raw["isl"], "seq_kv": keys, "dtype": dtype, "kv_dtype": stored,
        "impl": _named(engine, raw["kernel_source"]), "window": raw.get("window_size", np.zeros_like(keys)),
        "notes": np.where((stored == "fp8") & (dtype == "bfloat16"), flagged, ""),
    }  # fmt: skip


def _mla(raw: dict[str, Any], engine: str) -> dict[str, Column]:
    decode = "generation" in str(raw["op_name"][0])
    keys = raw["isl"] + raw["step"]
    return {
        "phase": np.full(len(keys), "decode" if decode else "fwd_context"), "batch": raw["batch_size"],
        "num_heads": raw["num_heads"], "tp_size": raw["tp_size"], "seq_q": np.ones_like(keys) if decode else raw["isl"],
        "seq_kv": keys, "dtype": raw["mla_dtype"].astype(str), "kv_dtype": raw["kv_cache_dtype"].astype(str),
        "impl": _named(engine, raw["kernel_source"]),
    }  # fmt: skip


def _implausible(columns: dict[str, Column], sku: str) -> NDArray[np.bool_]:
    """Decodes that would read their cache, too large for L2, faster than the memory delivers."""
    facts_ = Database.packaged().sku(sku)
    width = np.where(columns["kv_dtype"] == "fp8", 1.0, 2.0)
    sizes = [columns[name].astype(float) for name in ("batch", "seq_kv", "kv_heads", "head_dim")]
    moved = 2 * width * sizes[0] * sizes[1] * sizes[2] * sizes[3]  # keys and values
    too_fast = moved / (columns["time_us"] * 1e-6) > facts_.hbm_bytes_per_s
    found: NDArray[np.bool_] = (columns["phase"] == "decode") & (moved > facts_.l2_bytes) & too_fast
    return found


def _moe(raw: dict[str, Any], engine: str) -> dict[str, Column]:
    return {
        "num_tokens": raw["num_tokens"], "hidden": raw["hidden_size"], "moe_inter": raw["inter_size"],
        "topk": raw["topk"], "num_experts": raw["num_experts"], "moe_tp": raw["moe_tp_size"],
        "moe_ep": raw["moe_ep_size"], "distribution": raw["distribution"].astype(str),
        "dtype": raw["moe_dtype"].astype(str), "impl": _named(engine, raw["kernel_source"]),
    }  # fmt: skip


def _quantize(raw: dict[str, Any], engine: str) -> dict[str, Column]:
    return {
        "op": np.full(len(raw["m"]), "static fp8 quantise (bf16 read, fp8 write)"), "rows": raw["m"], "cols": raw["k"],
        "bytes_moved": 3 * raw["m"] * raw["k"], "impl": _named(engine, raw["kernel_source"]),
        "use": np.full(len(raw["m"]), not engine.startswith("sglang")),  # its kernel is not this one: a third of the speed
    }  # fmt: skip


def _collective(raw: dict[str, Any], engine: str) -> dict[str, Column]:
    name = raw["op_name"].astype(str)
    return {
        "op": name, "n_gpus": raw["num_gpus"],
        "bytes": raw["message_size"] * 2,  # elements of 16 bit
        "impl": np.full(len(name), f"nccl-tests {engine}"), "use": raw["nccl_dtype"] == "half",
    }  # fmt: skip


CONVERT = {
    "gemm": _gemm,
    "attention": _attention,
    "mla": _mla,
    "moe": _moe,
    "quantize": _quantize,
    "collective": _collective,
}


def _named(engine: str, kernels: Iterable[Any]) -> Column:
    return np.array([f"{engine}; {kernel}" for kernel in kernels])


def _rounded(time_us: Column) -> Column:
    power = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.maximum(time_us, 1e-9))))
    rounded: Column = np.round(time_us * power) / power
    return rounded


def sampled(family: str, columns: Mapping[str, Column], sku: str) -> NDArray[np.bool_]:
    """Which rows have a shape that may be taken; windows are in no sample."""
    marks = np.array([mark(sku, shape) for shape in shape_texts(family, columns).tolist()], np.uint32)
    whole = columns["window"] == 0 if "window" in columns else np.ones(len(marks), bool)
    found: NDArray[np.bool_] = np.isin(marks, sample()[family]) & whole
    return found


def mark(sku: str, shape: str) -> int:
    """32 bits that stand for a shape on a SKU."""
    return int.from_bytes(hashlib.sha256(f"{sku} {shape}".encode()).digest()[:4], "big")


@cache
def sample() -> dict[str, NDArray[np.uint32]]:
    """Marks of the shapes that may be taken, by family."""
    with np.load(str(files("tilewise.calibration.published") / "sample.npz")) as archive:
        return {name: archive[name] for name in archive.files}
