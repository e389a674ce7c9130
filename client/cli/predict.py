"""tilewise predict: one step of a model on one GPU or several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tilewise.client.cli.options import Command, asking, number, option, words, write
from tilewise.client.cli.texts import read_model
from tilewise.client.client import TilewiseClient, answered
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import workload_pb2 as work

CHOICES = {
    "phase": work.Phase,
    "precision": work.Precision,
    "mode": work.Mode,
    "recompute": work.Recompute,
    "optimizer": work.Optimizer,
    "state": work.State,
    "logits": work.Logits,
    "attention_backend": work.AttentionBackend,
    "cache": work.Cache,
    "engine": work.Engine,
    "kv_cache": work.KvCache,
}


def workload_options(phase: str | None = None) -> Callable[[Command], Command]:
    """The options that describe a workload; each is a field of tilewise.v1.Workload. `phase`: its default, or required."""
    phases = {"type": click.Choice(words(work.Phase)), "required": phase is None, "default": phase}
    added = (
        option("--phase", **phases, show_default=phase is not None, help="What runs."),
        option("--batch", type=int, default=1, show_default=True, help="Sequences per step."),
        option("--seq", "sequence", type=int, help="Tokens per sequence, in train and prefill."),
        option("--context", type=int, help="Keys that each new token attends to, in decode."),
        option("--precision", type=click.Choice(words(work.Precision)), help="Format of the GEMMs; unset: bf16."),
        option("--mode", type=click.Choice(words(work.Mode)), help="How kernels are launched; unset: eager."),
        option("--tp", "tensor_parallel", type=int, help="GPUs that share every layer; unset: 1."),
        option(
            "--recompute", type=click.Choice(words(work.Recompute)), help="Activations computed twice; unset: none."
        ),
        option("--optimizer", type=click.Choice(words(work.Optimizer)), help="Unset: adamw in train, else none."),
        option("--state", type=click.Choice(words(work.State)), help="Unset: sustained in train, else burst."),
        option(
            "--logits",
            type=click.Choice(words(work.Logits)),
            help="Positions of the lm_head; unset: last, all in train.",
        ),
        option("--attention-backend", type=click.Choice(words(work.AttentionBackend)), help="Unset: auto."),
        option(
            "--cache", type=click.Choice(words(work.Cache)), help="Of keys and values; unset: append, none in train."
        ),
        option("--engine", type=click.Choice(words(work.Engine)), help="Whose kernels serve; unset: none, so torch's."),
        option(
            "--ep",
            "expert_parallel",
            type=int,
            help="Of an engine's --tp GPUs, how many share out whole experts; unset: 1.",
        ),
        option(
            "--expert-skew",
            type=float,
            help="An engine's experts: shares of tokens fall as rank^-SKEW; unset: 0, evenly.",
        ),
        option("--kv-cache", type=click.Choice(words(work.KvCache)), help="Format of an engine's cache; unset: auto."),
    )

    def add(command: Command) -> Command:
        for decorate in reversed(added):
            command = decorate(command)
        return command

    return add


def workload_of(chosen: dict[str, Any]) -> work.Workload:
    """The Workload of a command's options."""
    fields = {name: number(CHOICES[name], value) if name in CHOICES else value for name, value in chosen.items()}
    try:
        return work.Workload(**fields)
    except ValueError as error:  # a number beyond 64 bits
        raise click.UsageError(f"a size is far out of range: {error}") from error


@click.command()
@click.argument("config", type=click.Path(allow_dash=True))
@option(
    "--gpu", required=True, metavar="SKU[,SKU]", help="GPU, or several separated by commas; see `tilewise gpus list`."
)
@workload_options()
@option("--calibration", default="", help="Id of a calibration; unset: the active one.")
@click.option("--set", "overrides", multiple=True, metavar="NAME=SIZE", help="Replace a size, as hidden_size=4096.")
@click.option("--operators", is_flag=True, help="Show every operator too (JSON always has them).")
@click.option("--advice", is_flag=True, help="Show where the time goes, how that shows, and what helps by how much.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw roofline and layers: FILE.png, .svg or .pdf.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write the whole report as one page, with pictures.")
@asking
def predict(
    config: str,
    gpu: str,
    calibration: str,
    overrides: tuple[str, ...],
    operators: bool,
    advice: bool,
    plot: str | None,
    html: str | None,
    server: str | None,
    form: str,
    output: str | None,
    **chosen: Any,
) -> None:
    """Predict time, walls, MFU and memory of one step of the model that CONFIG describes.

    CONFIG is a Hugging Face config.json, a shape in Tilewise's TOML, or - for stdin.
    """
    request = advisor.PredictRequest(
        model=read_model(config, overrides),
        workload=workload_of(chosen),
        calibration=calibration,
        detail=advisor.DETAIL_OPERATORS if operators or form == "json" or plot or html else advisor.DETAIL_LAYERS,
        diagnose=advice or html is not None,
    )
    with TilewiseClient(server) as client:
        answers = [client.predict(asked_of(request, name)) for name in gpu.split(",")]
    draw(answers, plot, html)
    write(rendered(answers, form, operators=operators), output)
    answered(answers)


def asked_of(request: advisor.PredictRequest, gpu: str) -> advisor.PredictRequest:
    asked = advisor.PredictRequest(gpu=gpu.strip())
    asked.MergeFrom(request)
    return asked


def draw(answers: list[advisor.PredictResponse], plot: str | None, html: str | None) -> None:
    """Write the pictures that were asked for; a page holds a report for each GPU, a picture shows one."""
    if plot is not None:
        from tilewise.client.render.plot import save

        if len(answers) > 1:
            raise click.UsageError("--plot shows one GPU; --html takes several")
        save(answers[0], plot)
    if html is not None:
        from tilewise.client.render.html import page

        write(page(answers), html)


def rendered(answers: list[advisor.PredictResponse], form: str, *, operators: bool = True) -> str:
    """One report a GPU: text one below the other; JSON one object, or "reports" where several GPUs were asked for."""
    if form == "json":
        from tilewise.client.render.data import dumps, to_data

        reports = [to_data(answer) for answer in answers]
        return dumps(reports[0] if len(reports) == 1 else {"reports": reports})
    from tilewise.client.render.report import report

    return "\n".join(report(answer, operators=operators) for answer in answers)
