"""tilewise predict: one step of a model on one GPU or several."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

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
from tilewise.client.cli.texts import read_model
from tilewise.client.cli.workload import workload_of, workload_options

if TYPE_CHECKING:
    from tilewise.v1 import advisor_service_pb2 as advisor

TOO_LARGE = 1  # exit code of --must-fit


@click.command()
@model_argument()
@gpu_option("GPU, or several separated by commas; see `tilewise gpus list`.")
@workload_options()
@option("--calibration", default="", help="Id of a calibration; unset: the active one.")
@set_option
@defaults_option
@as_option
@click.option("--operators", is_flag=True, help="Show every operator too (JSON always has them).")
@click.option("--advice", is_flag=True, help="Show where the time goes, how that shows, and what helps by how much.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw roofline and layers: FILE.png, .svg or .pdf.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write the whole report as one page, with pictures.")
@option("--must-fit/--no-must-fit", default=False, help="What does not fit into a GPU's memory is exit code 1.")
@partial(asking, forms=("text", "json", "csv"))
def predict(
    config: str,
    gpu: str,
    calibration: str,
    overrides: tuple[str, ...],
    allow_defaults: bool,
    family: str,
    operators: bool,
    advice: bool,
    plot: str | None,
    html: str | None,
    must_fit: bool,
    server: str | None,
    form: str,
    output: str | None,
    **chosen: Any,
) -> int:
    """Predict time, walls, MFU and memory of one step of the model that CONFIG describes.

    CONFIG is a Hugging Face config.json, a shape in Tilewise's TOML, or - for stdin.
    """
    from tilewise.client.client import TilewiseClient, answered  # not for a wrong option
    from tilewise.v1 import advisor_service_pb2 as advisor

    request = advisor.PredictRequest(
        model=read_model(config, overrides, allow_defaults=allow_defaults, family=family),
        workload=workload_of(chosen),
        calibration=calibration,
        detail=advisor.DETAIL_OPERATORS if operators or form == "json" or plot or html else advisor.DETAIL_LAYERS,
        diagnose=advice or html is not None,
    )
    with TilewiseClient(server) as client:
        answers = [client.predict(asked_of(request, name)) for name in comma_separated(gpu)]
    draw(answers, plot, html)
    write(rendered(answers, form, operators=operators), output)
    answered(answers)
    return TOO_LARGE if must_fit and not all(answer.memory.fits for answer in answers) else 0


def asked_of(request: advisor.PredictRequest, gpu: str) -> advisor.PredictRequest:
    asked = type(request)(gpu=gpu)
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
    """One report a GPU: text one below the other, CSV one table, JSON as `reports`, and for one GPU its keys at the top too."""
    if form == "json":
        from tilewise.client.render.data import dumps, to_data

        reports = [to_data(answer) for answer in answers]
        return dumps({**(reports[0] if len(reports) == 1 else {}), "reports": reports})
    if form == "csv":
        from tilewise.client.render.layers_csv import layers_csv

        return layers_csv(answers)
    from tilewise.client.render.report import report

    return "\n".join(report(answer, operators=operators) for answer in answers)
