"""tilewise rank: one model on many GPUs in one call, each in the precision that suits it best."""

from __future__ import annotations

from typing import Any

import click

from tilewise.client.cli.options import asking, comma_separated, model_argument, option, set_option, write
from tilewise.client.cli.texts import read_model
from tilewise.client.cli.workload import workload_of, workload_options
from tilewise.client.client import TilewiseClient
from tilewise.client.ranking import Asked, Entry, asked, entries, order
from tilewise.hwdb.errors import InvalidInput, OutOfRange
from tilewise.server.messages.words import number
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import gpu_pb2
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import Precision

EVERY = ("bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "mxfp4")


@click.command()
@model_argument()
@option("--gpu", default="", metavar="SKU[,SKU]", help="GPUs to rank; unset: every one that a calibration answers for.")
@option("--precisions", default="", metavar="FORMAT[,FORMAT]", help=f"To choose from; unset: of {', '.join(EVERY)} what a GPU has.")  # fmt: skip
@option(
    "--batches", default="", metavar="N[,N]", help="Rank at each of these batches, and say where the order changes."
)
@workload_options()
@set_option
@asking
def rank(
    config: str,
    gpu: str,
    precisions: str,
    batches: str,
    overrides: tuple[str, ...],
    server: str | None,
    form: str,
    output: str | None,
    **chosen: Any,
) -> None:
    """Rank GPUs for the model that CONFIG describes: tokens a second and a joule, and the precision each should use.

    GPUs whose difference is within the error of the predictions share a place: their order is not known.
    """
    from tilewise.client.render.ranking import data, page

    model = read_model(config, overrides)
    sizes = [_size(word) for word in batches.split(",")] if batches else [int(chosen["batch"])]
    alone = chosen.pop("precision")
    formats = _formats(precisions or alone or "")
    with TilewiseClient(server) as client:
        questions = list(asked(sizes, _gpus(client, gpu), formats))
        requests = (_request(model, question, chosen) for question in questions)
        found = entries(questions, client.batch_predict(requests))
    rankings = {size: order([entry for entry in found if entry.batch == size]) for size in sizes}
    write(data(rankings, found) if form == "json" else page(rankings, found), output)
    if not any(entry.tokens_per_s for entry in found):
        raise OutOfRange("; ".join(sorted({_why(entry) for entry in found})), reason="OUT_OF_RANGE")


def _request(model: Model, question: Asked, chosen: dict[str, Any]) -> advisor.PredictRequest:
    batch, gpu, precision = question
    workload = workload_of({**chosen, "batch": batch, "precision": precision})
    return advisor.PredictRequest(model=model, gpu=gpu.sku, workload=workload, detail=advisor.DETAIL_STEP)


def _why(entry: Entry) -> str:
    return f"{entry.gpu}: {entry.reason}"


def _gpus(client: TilewiseClient, names: str) -> list[gpu_pb2.Gpu]:
    """The GPUs named, or all that have a calibration, with their peaks."""
    if names:
        return [client.get_gpu(name).gpu for name in comma_separated(names)]
    return [gpu for gpu in client.list_gpus().gpus if gpu.calibration]


def _formats(precisions: str) -> tuple[str, ...]:
    wanted = tuple(filter(None, comma_separated(precisions))) or EVERY
    for name in wanted:
        number(Precision.DESCRIPTOR, name, "precision")
    return wanted


def _size(word: str) -> int:
    if not word.strip().isdigit() or int(word) < 1:
        raise InvalidInput(f"batch {word!r} is no whole number from 1 up", reason="INVALID_WORKLOAD", field="batches")
    return int(word)
