"""Tables of attention kernels: forward, backward and decode, plain or over a latent cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.kernels.attention import latent
from tilewise.hwdb.table import Ints, Phase
from tilewise.server.architecture.model import Attention
from tilewise.server.operators.attention_kernel import Heads, kernel
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.plan import Plan
from tilewise.server.validate import rules
from tilewise.server.validate.asked import Asked, Part, emitted, sizes
from tilewise.server.validate.sheet import Sheet, Words
from tilewise.server.workload import Workload

PHASES = {
    "forward": ("prefill", Phase.FORWARD),
    "backward": ("train", Phase.BACKWARD),
    "decode": ("decode", Phase.DECODE),
}
BACKENDS = ("flash", "cudnn", "math")
SIZES = ("heads", "kv_heads", "head_dim", "head_dim_v", "seq_q", "seq_kv", "window")


def ask(sheet: Sheet, found: list[str]) -> Asked:
    """[attention], by the library named in `backend`; a library other than torch's is asked as the one torch would take."""
    columns = {name: sheet.number(name) for name in SIZES}
    columns["head_dim_v"] = np.where(np.isnan(columns["head_dim_v"]), columns["head_dim"], columns["head_dim_v"])
    columns["window"] = np.nan_to_num(columns["window"])
    return _asked(sheet, found, columns, sheet.words("phase", "phase"), sheet.text("backend"))


def ask_latent(sheet: Sheet, found: list[str]) -> Asked:
    """[mla]: prefill on full heads, decode absorbed into the latent space, where all heads share one key."""
    phase = sheet.words("phase", "phase")
    columns = {
        **latent.columns(sheet.number("num_heads"), phase == "decode"),
        "seq_q": sheet.number("seq_q"),
        "seq_kv": sheet.number("seq_kv"),
        "window": np.zeros(len(sheet)),
    }
    return _asked(sheet, found, columns, phase, sheet.text("impl"))


def _asked(sheet: Sheet, found: list[str], columns: dict[str, Any], phase: Words, backend: Words) -> Asked:
    _refuse(sheet, found, columns, phase)
    rows = rules.usable(found)
    parts = [part for key, some in _alike(sheet, phase, backend, rows) for part in _part(key, some, columns)]
    groups = {
        "operator": np.char.add("attention ", phase),
        "precision": sheet.words("dtype", "precision", "bf16"),
        "backend": backend,
        "head_dim": np.array([f"{dim:g}" for dim in columns["head_dim"].tolist()]),
        "causal": np.where(sheet.number("causal", 1) > 0, "causal", "full"),
    }
    return Asked.of(sheet, found, parts, groups, named=True)


def _refuse(sheet: Sheet, found: list[str], columns: dict[str, Any], phase: Words) -> None:
    """Rows that no operator here stands for."""
    unknown = ~np.isin(phase, list(PHASES))
    rules.explain(found, unknown, "phase not stated")
    rules.explain(found, np.isnan(np.stack(list(columns.values()))).any(axis=0), "shape not stated in full")
    stored = sheet.words("kv_dtype", "precision", "bf16")
    number = sheet.words("dtype", "precision", "bf16")
    narrow = ~np.isin(stored, ["bf16", "fp16"]) | ~np.isin(number, ["bf16", "fp16"])
    rules.explain(found, narrow & (sheet.named == 0), "attention in fp8 is not modelled")


def _alike(sheet: Sheet, phase: Words, backend: Words, rows: Ints) -> Iterator[tuple[tuple[Any, ...], Ints]]:
    """Rows that differ in sizes alone, by (phase, backend, precision, format of the cache, batch, causal)."""
    known = np.where(np.isin(backend, BACKENDS), backend, "auto")
    causal, batch = sheet.number("causal", 1) > 0, sheet.number("batch")
    precision = sheet.words("dtype", "precision", "bf16")
    stored = sheet.words("kv_dtype", "precision", "bf16")
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in rows.tolist():
        words = str(phase[row]), str(known[row]), str(precision[row]), str(stored[row])
        key = (*words, int(batch[row]), bool(causal[row]))
        groups.setdefault(key, []).append(row)
    for key, some in groups.items():
        yield key, np.array(some, np.int64)


def _part(key: tuple[Any, ...], rows: Ints, columns: dict[str, Any]) -> list[Part]:
    """The kernels of these rows, as the operator builder emits them; of a training step the backward's alone."""
    phase, backend, precision, stored, batch, causal = key
    run, code = PHASES[phase]
    size: dict[str, Any] = {name: sizes(values[rows].astype(np.int64)) for name, values in columns.items()}

    def emit(e: Emitter) -> None:
        options: dict[str, Any] = {"context": 1} if run == "decode" else {"sequence": 1}
        options |= {"attention_backend": backend, "precision": precision, "mode": "compiled", "stack": "transformers"}
        plan = Plan.of(Workload(phase=run, batch=batch, **options))
        plan = replace(plan, stored=1 if stored == "fp8" else plan.stored)
        attention = Attention(
            heads=size["heads"], kv_heads=size["kv_heads"], head_dim=size["head_dim"], head_dim_v=size["head_dim_v"],
            projections=(), causal=causal, window=size["window"],
        )  # fmt: skip
        heads = Heads(
            q=size["heads"], kv=size["kv_heads"], dim=size["head_dim"], dim_v=size["head_dim_v"],
            tokens=batch * size["seq_q"], kv_tokens=batch * size["seq_kv"], seq_q=size["seq_q"], seq_kv=size["seq_kv"],
        )  # fmt: skip
        kernel(e, plan, attention, heads, bare=True)

    table, owner = emitted(rows, emit)
    kept = table.phase == code
    return [(table.select(kept), owner[kept])]
