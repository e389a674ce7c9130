"""tilewise sweep: time or MFU against one size or two, with the cliffs and why they are there."""

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
from tilewise.client.cli.workload import SIZES, workload_of, workload_options
from tilewise.client.client import TilewiseClient
from tilewise.v1 import advice_pb2 as advice


@click.command()
@model_argument()
@gpu_option("GPU, or several separated by commas; see `tilewise gpus list`.")
@workload_options()
@click.option(
    "--vary",
    multiple=True,
    required=True,
    metavar="FIELD=FIRST:LAST[:STEP]",
    help=f"What is varied, also as FIELD=V1,V2,...: a size, or {', '.join(SIZES)}. Once or twice.",
)
@option(
    "--show",
    type=click.Choice(["time", "mfu"]),
    default="time",
    show_default=True,
    help="What table and pictures show.",
)
@set_option
@defaults_option
@as_option
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    help="Draw it: a line for one field, a map for two. FILE.png, .svg or .pdf.",
)
@click.option(
    "--html", type=click.Path(dir_okay=False), help="Write a page whose picture tells each point under the pointer."
)
@asking
def sweep(
    config: str, gpu: str, vary: tuple[str, ...], show: str, overrides: tuple[str, ...], allow_defaults: bool, family: str, plot: str | None, html: str | None,
    server: str | None, form: str, output: str | None, **chosen: Any,
) -> None:  # fmt: skip
    """Predict the model that CONFIG describes along one field or two, and mark where a small step costs much."""
    request = advice.SweepRequest(
        model=read_model(config, overrides, allow_defaults=allow_defaults, family=family), workload=workload_of(chosen), axes=map(axis, vary),
        gpus=comma_separated(gpu),
    )  # fmt: skip
    with TilewiseClient(server) as client:
        answer = client.sweep(request, Teller("points"))
    if plot is not None:
        from tilewise.client.render.sweep_plot import save

        save(request, answer, show, plot)
    if html is not None:
        from tilewise.client.render.sweep_html import page

        write(page(request, answer, show), html)
    if form == "json":
        from tilewise.client.render.data import to_json

        write(to_json(answer), output)
    else:
        from tilewise.client.render.sweep import sweep_text

        write(sweep_text(request, answer, show), output)


def axis(text: str) -> advice.Axis:
    """ "hidden_size=4096:8192:64" or "batch=1,2,4" -> an axis."""
    field, _, values = text.partition("=")
    try:
        if ":" in values:
            first, last, *step = (int(value) for value in values.split(":"))
            return advice.Axis(field=field.strip(), range=advice.Range(first=first, last=last, step=(step or [1])[0]))
        return advice.Axis(field=field.strip(), values=[int(value) for value in values.split(",")])
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} must have the form FIELD=FIRST:LAST[:STEP] or FIELD=V1,V2,...", param_hint="--vary"
        ) from error
