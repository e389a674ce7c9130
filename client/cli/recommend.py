"""tilewise recommend: nearby shapes, ways to run and number formats that are faster, free wins first."""

from __future__ import annotations

from typing import Any

import click

from tilewise.client.cli.options import (
    as_option,
    asking,
    comma_separated,
    defaults_option,
    gpu_option,
    model_argument,
    option,
    set_option,
    write,
)
from tilewise.client.cli.progress import Teller
from tilewise.client.cli.texts import read_model
from tilewise.client.cli.workload import FIELDS, workload_of, workload_options
from tilewise.client.client import TilewiseClient
from tilewise.client.question import check_sizes
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.messages.words import filled, number, type_of, words
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1.workload_pb2 import Precision, Workload

KINDS, OBJECTIVES, FORMATS = (enum.DESCRIPTOR for enum in (advice.AdviceKind, advice.Objective, Precision))


@click.command()
@model_argument()
@gpu_option("GPU; of several, the one that gains least decides.")
@workload_options()
@click.option(
    "--also",
    multiple=True,
    metavar="FIELD=VALUE,...",
    help="Another workload of the mix, as phase=decode,batch=32,context=4096,weight=3.",
)
@click.option(
    "--weight", type=float, default=1.0, show_default=True, help="Share of the first workload's tokens in the mix."
)
@option(
    "--objective",
    type=click.Choice(words(OBJECTIVES)),
    default="time",
    show_default=True,
    help="What to make smaller.",
)
@option(
    "--max-parameter-change",
    type=float,
    default=0.01,
    show_default=True,
    help="How far the parameter count may move; 0.01 is 1 %.",
)
@click.option(
    "--vary", multiple=True, metavar="SIZE", help="Sizes that may change; unset: all. May be given several times."
)
@click.option("--keep", multiple=True, metavar="SIZE", help="Sizes that must not change.")
@click.option(
    "--split", type=int, multiple=True, metavar="GPUS", help="Tensor-parallel sizes that every shape must allow."
)
@click.option(
    "--format-advice",
    "precisions",
    type=click.Choice(words(FORMATS)),
    multiple=True,
    help="Number formats to look at; unset: all.",
)
@click.option("--kind", "kinds", type=click.Choice(words(KINDS)), multiple=True, help="Kinds of advice; unset: all.")
@option("--max-memory", type=float, metavar="GB", help="Most resident memory of one GPU; unset: what it has.")
@option("--max-candidates", type=int, default=100_000, show_default=True, help="Most re-shapes to evaluate.")
@option("--results", type=int, default=10, show_default=True, help="Most pieces of advice.")
@set_option
@defaults_option
@as_option
@asking
def recommend(
    config: str, gpu: str, also: tuple[str, ...], weight: float, objective: str, max_parameter_change: float,
    vary: tuple[str, ...], keep: tuple[str, ...], split: tuple[int, ...], precisions: tuple[str, ...], kinds: tuple[str, ...],
    max_memory: float | None, max_candidates: int, results: int, overrides: tuple[str, ...], allow_defaults: bool, family: str, server: str | None, form: str,
    output: str | None, **chosen: Any,
) -> None:  # fmt: skip
    """Say which change of the model that CONFIG describes makes it faster, by how much, why, and at what price.

    Every figure is predicted with a 90 % interval; a gain inside it is called "cannot tell". What a change does to the
    model's quality is not predicted.
    """
    mix = [advice.WeightedWorkload(workload=workload_of(chosen), weight=weight), *map(weighted, also)]
    near = advice.Neighbourhood(
        max_parameter_change=max_parameter_change, vary=vary, keep=keep, tensor_parallel=split,
        precisions=[number(FORMATS, each) for each in precisions], max_candidate_count=max_candidates,
        max_memory_bytes=None if max_memory is None else int(max_memory * 1e9),
    )  # fmt: skip
    request = advice.RecommendRequest(
        model=read_model(config, overrides, allow_defaults=allow_defaults, family=family), workloads=mix, gpus=comma_separated(gpu),
        objective=number(OBJECTIVES, objective), neighbourhood=near,
        kinds=[number(KINDS, each) for each in kinds], max_results=results,
    )  # fmt: skip
    with TilewiseClient(server) as client:
        answer = client.recommend(request, Teller("candidates"))
    if form == "json":
        from tilewise.client.render.data import to_json

        write(to_json(answer), output)
    else:
        from tilewise.client.render.advice import advice_text

        write(advice_text(request, answer), output)


def weighted(text: str) -> advice.WeightedWorkload:
    """ "phase=decode,batch=32,context=4096,weight=3" -> a workload and its weight."""
    fields: dict[str, Any] = dict(pair.partition("=")[::2] for pair in text.split(","))
    try:
        weight = float(fields.pop("weight", 1))
        typed = {name: type_of(FIELDS[name])(value) if name in FIELDS else value for name, value in fields.items()}
        check_sizes(typed)
        return advice.WeightedWorkload(workload=filled(Workload, typed), weight=weight)
    except (ValueError, InvalidInput) as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--also") from error
