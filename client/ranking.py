"""Which GPU is how fast, in which precision, and whether the difference is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from tilewise.client.client import TilewiseClient
from tilewise.client.question import message_of, number
from tilewise.hwdb.errors import OutOfRange
from tilewise.hwdb.record import Record
from tilewise.server.messages.question import program_of
from tilewise.server.messages.words import word
from tilewise.server.step.intervals import independent
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import gpu_pb2
from tilewise.v1.model_pb2 import Model
from tilewise.v1.prediction_pb2 import Trust
from tilewise.v1.workload_pb2 import Precision, Stack, Workload

EVERY = ("bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "mxfp4")
PEAK_KEYS = {"fp8_block": "fp8"}  # precisions whose dense rate has another name

Asked = tuple[int, gpu_pb2.Gpu, str]


class Entry(Record):
    """A prediction in one precision. tokens_per_s with its 90 % interval, 0 where `reason` says why there is none;

    power_w: the GPU's limit; place: counted from 1 within its batch, 0 before the order is made; stack: what runs it, "" where refused
    """

    batch: int
    gpu: str
    precision: str
    tokens_per_s: float
    tokens_per_s_low: float
    tokens_per_s_high: float
    power_w: float
    trust: str
    calibration: str
    fits: bool
    reason: str = ""
    place: int = 0
    stack: str = ""

    @property
    def tokens_per_j_at_tdp(self) -> float:
        """Tokens a joule at the power limit; a GPU that draws less does better."""
        return self.tokens_per_s / self.power_w


def ranked(
    client: TilewiseClient,
    model: Model,
    workload: Workload,
    gpus: Sequence[str] = (),
    formats: Sequence[str] = (),
    batches: Sequence[int] = (),
) -> list[Entry]:
    """Every GPU in every format and batch, in one call; unset: all calibrated GPUs, `EVERY` format that the stack has, the workload's batch.

    A workload that has a precision is asked about in that one, where no formats are named.
    """
    for name in formats:
        number("precision", Precision.DESCRIPTOR, name)
    runs = program_of(workload).precisions
    usual = [name for name in EVERY if not runs or name in runs]
    alone = [word(Precision.DESCRIPTOR, workload.precision)] if workload.precision else usual
    questions = list(asked(batches or [workload.batch or 1], known(client, gpus), formats or alone))
    return entries(questions, client.batch_predict(_request(model, workload, question) for question in questions))


def known(client: TilewiseClient, names: Sequence[str]) -> list[gpu_pb2.Gpu]:
    """The GPUs named, or all that have a calibration, with their peaks."""
    if names:
        return [client.get_gpu(name).gpu for name in names]
    return [gpu for gpu in client.list_gpus().gpus if gpu.calibration]


def _request(model: Model, workload: Workload, question: Asked) -> advisor.PredictRequest:
    batch, gpu, precision = question
    request = advisor.PredictRequest(model=model, gpu=gpu.sku, workload=workload, detail=advisor.DETAIL_STEP)
    request.workload.MergeFrom(message_of(Workload, {"batch": batch, "precision": precision}))
    return request


def refused(found: Iterable[Entry]) -> OutOfRange:
    """Why no GPU was answered for."""
    return OutOfRange("; ".join(sorted({f"{entry.gpu}: {entry.reason}" for entry in found})), reason="OUT_OF_RANGE")


def orders(found: Sequence[Entry]) -> dict[int, list[Entry]]:
    """The ranking of each batch."""
    batches = dict.fromkeys(entry.batch for entry in found)
    return {batch: order([entry for entry in found if entry.batch == batch]) for batch in batches}


def asked(batches: Sequence[int], gpus: Sequence[gpu_pb2.Gpu], formats: Sequence[str]) -> Iterator[Asked]:
    """Every (batch, GPU, precision) that the GPU has units for."""
    for batch in batches:
        for gpu in gpus:
            there = {peak.key for peak in gpu.peaks}
            yield from ((batch, gpu, name) for name in formats if PEAK_KEYS.get(name, name) in there)


def entries(questions: Iterable[Asked], answer: advisor.BatchPredictResponse) -> list[Entry]:
    """One entry a question, in order."""
    return [_entry(*question, result) for question, result in zip(questions, answer.results, strict=True)]


def _entry(batch: int, gpu: gpu_pb2.Gpu, precision: str, result: advisor.PredictResult) -> Entry:
    step = result.response.step
    reason = result.error.message or step.refusal
    prediction = step.prediction
    time = prediction.time_s
    rate = step.tokens_per_s if time and not reason else 0.0
    return Entry(
        batch=batch, gpu=gpu.sku, precision=precision, tokens_per_s=rate,
        tokens_per_s_low=rate * time / prediction.time_high_s if rate else 0.0,
        tokens_per_s_high=rate * time / prediction.time_low_s if rate else 0.0,
        power_w=gpu.power_w, trust=word(Trust.DESCRIPTOR, prediction.trust),
        calibration=gpu.calibration, fits=result.response.memory.fits, reason=reason,
        stack=word(Stack.DESCRIPTOR, result.response.workload.stack),
    )  # fmt: skip


def order(found: Sequence[Entry]) -> list[Entry]:
    """The best precision of every GPU, fastest first; those share a place that may be as fast as the fastest of it."""
    best: dict[str, Entry] = {}
    for entry in found:
        if entry.tokens_per_s and (entry.gpu not in best or _better(entry, best[entry.gpu])):
            best[entry.gpu] = entry
    ranked = sorted(best.values(), key=lambda entry: (not entry.fits, -entry.tokens_per_s))
    placed: list[Entry] = []
    head = None
    for index, entry in enumerate(ranked, 1):
        if head is None or _slower(entry, head) or entry.fits != head.fits:
            head, place = entry, index
        placed.append(replace(entry, place=place))
    return placed


def _better(one: Entry, other: Entry) -> bool:
    return (one.fits, one.tokens_per_s) > (other.fits, other.tokens_per_s)


def _slower(entry: Entry, other: Entry) -> bool:
    """Whether the whole 90 % interval of the ratio says so; two GPUs have no measurement in common."""
    return (
        independent(*((each.tokens_per_s_low, each.tokens_per_s, each.tokens_per_s_high) for each in (other, entry)))[2]
        < 1
    )


def swaps(before: Sequence[Entry], after: Sequence[Entry]) -> list[tuple[str, str]]:
    """Pairs (was faster, is faster now) of which both are known."""
    old, new = ({entry.gpu: entry for entry in ranking} for ranking in (before, after))
    return [
        (a, b)
        for a in old
        for b in old
        if a in new and b in new and _slower(old[b], old[a]) and _slower(new[a], new[b])
    ]
