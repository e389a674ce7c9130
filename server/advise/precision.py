"""Which number format the linear layers should multiply in: the whole step with its casts, by class of operator, and from which size on.

What a format does to accuracy is not predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.kinds import PRODUCTS
from tilewise.server.advise.advice import Kind, Recommendation
from tilewise.server.advise.asked import Asked
from tilewise.server.advise.subject import Subject
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
    for name, found in narrowed(scales, allowed):
        if found is None:
            notes.append(f"{name}: {reason(subject, asked, name)}")
            continue
        classes, size = told(before, found.effects[0].after), crossing(subject, asked[0], name)
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


def crossing(subject: Subject, asked: Asked, name: str) -> str:
    """From how many tokens a step on the format wins for this model."""
    for tokens in TOKENS:
        old, new = (_time(subject, asked, tokens, each) for each in (asked.workload.precision, name))
        if old is None or new is None:
            continue
        if new < old:
            at_least = "at any size" if tokens == TOKENS[0] else f"from about {tokens:,} tokens a step on"
            return f"faster {at_least}"
    return f"not faster at any size up to {TOKENS[-1]:,} tokens a step"


def _time(subject: Subject, asked: Asked, tokens: int, precision: str) -> float | None:
    """Seconds of a step of so many tokens; None where there is no time for it."""
    try:
        report = predict(asked.gpu, subject.architecture, resized(asked.workload, tokens, precision), detailed=False)
    except (InvalidInput, NotAvailable):
        return None
    return None if report.step.time is None else report.step.time.time_s


def resized(work: Workload, tokens: int, precision: str) -> Workload:
    """The workload with so many tokens a step: batch in decode, else sequences no longer than they are."""
    if work.phase == "decode":
        return replace(work, batch=tokens, precision=precision)
    length = min(work.sequence, tokens)
    return replace(work, batch=max(1, tokens // length), sequence=length, precision=precision)
