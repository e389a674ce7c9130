"""Joint re-shapes: several sizes moved together so that the parameters stay what they are.

Depth, width, heads, vocabulary and experts take the values nearby; the feed-forward width then closes the balance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np

from tilewise.hwdb.table import Floats, Ints
from tilewise.server.advise.asked import Changes, as_changes, each_possible
from tilewise.server.advise.proposals import LINE, head_dims, heads_grain, nearby, paddings
from tilewise.server.advise.subject import Subject
from tilewise.server.architecture import Architecture, count
from tilewise.server.limits import check_candidates, most_candidates

HIDDEN_REACH = 0.1  # of hidden_size either way: together with DEPTH_REACH, depth to width moves by a quarter at most
DEPTH_REACH = 0.1
WIDTH_REACH = 0.15
WIDTHS_EACH = 9  # multiples of a line around the width that keeps the parameters
Shape = dict[str, int]


def candidates(subject: Subject, fields: Sequence[str], split: int, tolerance: float, most: int) -> Changes:
    """Shapes within `tolerance` of the model's parameters, as arrays; no more than `most`, the nearest first.

    fields: sizes that may change; split: GPUs that share a layer. Empty where nothing can be moved. Raises TooLarge where
    the sizes nearby, all combined, are more than a request may have.
    """
    width = next((name for name in ("moe_intermediate_size", "intermediate_size") if name in fields), "")
    shapes = list(islice(_shapes(subject, set(fields), split), most_candidates() + 1))
    check_candidates(len(shapes), "neighbourhood.keep")
    if not width or len(shapes) < 2:
        return {}
    changes = as_changes(subject, shapes)
    closed = _closed(subject, changes, width, LINE * split)
    within = _within(subject, closed, tolerance)
    nearest = np.argsort(_distance(subject, closed)[within], kind="stable")[:most]
    return {name: values[within][nearest] for name, values in closed.items()}


def _shapes(subject: Subject, fields: set[str], split: int) -> Iterator[Shape]:
    """Every combination of the sizes that are stepped through; the feed-forward width is left to close the balance."""
    sizes = subject.sizes
    depths = _near(sizes, "num_hidden_layers", fields, 1, DEPTH_REACH)
    hiddens = _near(sizes, "hidden_size", fields, LINE * split, HIDDEN_REACH)
    padded = paddings(sizes["vocab_size"], split)[:2] if "vocab_size" in fields else []
    vocabularies = [{}, *({"vocab_size": size} for size in padded)]
    experts = _near(sizes, "num_experts", fields, 8, HIDDEN_REACH)
    for hidden, depth, vocabulary, number in product(hiddens, depths, vocabularies, experts):
        for heads in _heads(subject, hidden.get("hidden_size", sizes["hidden_size"]), fields, split):
            yield {**hidden, **depth, **vocabulary, **number, **heads}


def _near(sizes: dict[str, int], field: str, fields: set[str], grain: int, reach: float) -> list[Shape]:
    """The size as it is, and the multiples of `grain` around it."""
    if field not in fields:
        return [{}]
    return [{}, *({field: value} for value in nearby(sizes[field], grain, max(reach, 1.01 / sizes[field])))]


def _heads(subject: Subject, hidden: int, fields: set[str], split: int) -> Iterator[Shape]:
    """Ways to cut a width into heads that kernels have: as many key and value heads as now, or their share of the heads."""
    sizes = subject.sizes
    heads, dim, kv_heads = (sizes.get(name, 0) for name in ("num_attention_heads", "head_dim", "num_key_value_heads"))
    if "num_attention_heads" not in fields or not (heads and dim) or sizes.get("kv_lora_rank"):
        yield {}
        return
    for other in [dim, *(head_dims(dim) if "head_dim" in fields else [])]:
        width = hidden if subject.head_dim_follows else heads * dim * hidden / sizes["hidden_size"]
        grain = heads_grain(heads, split)
        cut = round(width / other / grain) * grain
        if not cut or (subject.head_dim_follows and cut * other != hidden):
            continue
        shape = {"num_attention_heads": cut, **({} if subject.head_dim_follows else {"head_dim": other})}
        for kv in _kv_heads(heads, kv_heads, cut, "num_key_value_heads" in fields):
            yield {**shape, **({} if subject.kv_heads_follow else {"num_key_value_heads": kv})}


def _kv_heads(heads: int, kv_heads: int, cut: int, may_change: bool) -> list[int]:
    if kv_heads == heads:
        return [cut]
    share = kv_heads * cut // heads if may_change and kv_heads * cut % heads == 0 else kv_heads
    return sorted({each for each in (kv_heads, share) if each and cut % each == 0})


def _closed(subject: Subject, changes: Changes, width: str, grain: int) -> Changes:
    """Each shape WIDTHS_EACH times, with widths around that which gives it the parameters of the model as it is."""
    size = subject.sizes[width]
    total = len(next(iter(changes.values())))
    narrow, wide = (
        _parameters(subject, {**changes, width: np.full(total, value)}) for value in (size, size + 64 * grain)
    )
    ideal = size + 64 * grain * (subject.parameters - narrow) / (wide - narrow)
    possible = np.flatnonzero(np.isfinite(ideal) & (abs(ideal / size - 1) <= WIDTH_REACH))
    steps = np.arange(WIDTHS_EACH) - WIDTHS_EACH // 2
    widths = (np.rint(ideal[possible] / grain).astype(np.int64)[:, None] + steps) * grain
    closed = {name: np.repeat(values[possible], WIDTHS_EACH) for name, values in changes.items()}
    return {**closed, width: np.maximum(widths, grain).ravel()}


def _parameters(subject: Subject, changes: Changes) -> Floats:
    found = np.full(len(next(iter(changes.values()))), np.nan)

    def fill(arch: Architecture, rows: Ints) -> None:
        found[rows] = count(arch).total

    each_possible(subject, changes, np.arange(len(found)), fill)
    return found


def _within(subject: Subject, changes: Changes, tolerance: float) -> Ints:
    """The candidates whose parameters stay within `tolerance`."""
    if not len(next(iter(changes.values()))):
        return np.array([], np.int64)
    return np.flatnonzero(abs(_parameters(subject, changes) / subject.parameters - 1) <= tolerance)


def _distance(subject: Subject, changes: Changes) -> Floats:
    """How far a person would call a shape from the model's own: the sum of its sizes' changes in octaves."""
    octaves = [abs(np.log2(values / subject.sizes[name])) for name, values in changes.items()]
    total: Floats = np.sum(octaves, axis=0)
    return total
