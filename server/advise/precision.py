"""Which number format the linear layers should multiply in: the whole step with its casts, by class of operator, and from which size on.

What a format does to accuracy is not predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.kinds import PRODUCTS
from tilewise.server.advise.advice import Kind, Recommendation
from tilewise.server.advise.asked import Asked
from tilewise.server.advise.subject import Subject
from tilewise.server.advise.sweep import predicted
from tilewise.server.advise.weigh import Scales
from tilewise.server.architecture.model import Experts
from tilewise.server.step.predict import predict
from tilewise.server.step.report import Report
from tilewise.server.workload import Workload

NARROW = ("fp8", "fp8_row", "int8", "mxfp8", "nvfp4")
CLASSES = {
    "attention": "attention projections",
    "mlp": "mlp",
    "moe": "experts",
}  # part -> what a reader calls its products
TOKENS = tuple(1 << power for power in range(4, 18))  # of one step, in which the crossover is looked for
STAYS = "attention itself, router, lm_head, norms and the optimizer stay as they are"
FEW_ROWS = 128  # of one expert: below, one tile of a kernel is not filled (DeepGEMM's smallest block of a group)
UNKNOWN = "what the format does to accuracy is not predicted"


def precisions(scales: Scales, allowed: Sequence[str], notes: list[str]) -> Iterator[Recommendation]:
    """`narrowed`, each with what it does to which products and from which size on; what is not known is added to `notes`."""
    subject, asked, before = scales.subject, scales.asked, scales.before[0]
    own: list[float] = []
    for name, found in narrowed(scales, allowed):
        if found is None:
            notes.append(f"{name}: {reason(subject, asked, name)}")
            continue
        own = own or times(subject, asked[0], asked[0].workload.precision)
        classes, size = told(before, found.effects[0].after), crossing(own, times(subject, asked[0], name))
        yield replace(found, message=f"{classes}; {size}; {few_rows(before)}{STAYS}; {UNKNOWN}")


def narrowed(scales: Scales, allowed: Sequence[str] = ()) -> Iterator[tuple[str, Recommendation | None]]:
    """Every narrower format, weighed; None where a GPU lacks it, its kernels are not known, or it does not fit."""
    for name in formats(scales.asked, allowed):
        yield name, scales.weigh(Kind.PRECISION, workload={"precision": name})


def formats(asked: Sequence[Asked], allowed: Sequence[str]) -> list[str]:
    """Narrower formats worth a look: none where the model has one already; int8 only where nothing is trained."""
    if any(each.workload.quantized for each in asked):
        return []
    training = any(each.workload.phase == "train" for each in asked)
    return [name for name in allowed or NARROW if name in NARROW and not (training and name == "int8")]


def few_rows(report: Report) -> str:
    """A warning where each expert multiplies few tokens: there, measured gains of narrow formats were lost again."""
    layers = (block.feed_forward for stack in report.architecture.stacks for block in stack.blocks)
    experts = next((layer for layer in layers if isinstance(layer, Experts)), None)
    if experts is None:
        return ""
    each = report.workload.tokens * int(experts.top_k) / int(experts.count)
    if each >= FEW_ROWS:
        return ""
    return f"doubtful for experts that see {each:.3g} tokens each: kernels for few rows often lose what the bytes promise; "


def reason(subject: Subject, asked: Sequence[Asked], name: str) -> str:
    """Why a format is not predicted."""
    for each in asked:
        try:
            report = predict(each.gpu, subject.architecture, replace(each.workload, precision=name), detailed=False)
        except (InvalidInput, NotAvailable) as error:
            return error.message
        if report.step.refusal:
            return f"not predicted on {each.gpu.sku.name}: {report.step.refusal}"
    return "it does not fit into memory"


def told(before: Report, after: Report) -> str:
    """Time after over before of each class of products, its casts and scales counted."""
    ratios = []
    for part, words in CLASSES.items():
        old, new = products(before, part), products(after, part)
        if old and new:
            ratios.append(f"{words} {new / old:.2f}")
    return f"time of the products with casts and scales, after over before: {', '.join(ratios)}"


def products(report: Report, part: str) -> float:
    """Seconds a token of the matrix products of one part, with the casts before them."""
    rows = (row for row in report.operators if row.part == part)
    seconds = sum(row.total_s for row in rows if row.kind in PRODUCTS or "quant" in row.name)
    return seconds / report.workload.tokens


def crossing(old: Sequence[float], new: Sequence[float]) -> str:
    """From how many tokens a step on a format wins; old, new: seconds of a step of each of TOKENS, NaN for those without a time."""
    at = next((tokens for tokens, before, after in zip(TOKENS, old, new, strict=True) if after < before), None)
    if at is None:
        return f"not faster at any size up to {TOKENS[-1]:,} tokens a step"
    return f"faster {'at any size' if at == TOKENS[0] else f'from about {at:,} tokens a step on'}"


def times(subject: Subject, asked: Asked, precision: str) -> list[float]:
    """Seconds of a step of each of TOKENS on a format; NaN where there is no time for it."""
    found = np.full(len(TOKENS), np.nan)
    sizes = [resized(asked.workload, tokens) for tokens in TOKENS]
    points = [tuple(each.values()) for each in sizes]
    work = replace(asked.workload, precision=precision)
    for each in chain.from_iterable(predicted(subject, work, [asked.gpu], list(sizes[0]), points)):
        if each.shapes is not None:
            found[each.at] = each.shapes.steps.time_s
    return found.tolist()


def resized(work: Workload, tokens: int) -> dict[str, int]:
    """Lengths of a step of so many tokens: batch in decode, else sequences no longer than they are."""
    if work.phase == "decode":
        return {"batch": tokens}
    length = min(work.sequence, tokens)
    return {"batch": max(1, tokens // length), "sequence": length}
