"""tilewise gpus: which GPUs are known, how well, and from where."""

from __future__ import annotations

import click

from tilewise.client.cli.options import asking, write
from tilewise.client.client import TilewiseClient


@click.group()
def gpus() -> None:
    """Which GPUs are known, how well, and from where."""


@gpus.command("list")
@asking
def list_gpus(server: str | None, form: str, output: str | None) -> None:
    """List the known GPUs."""
    from tilewise.client.render.data import to_json
    from tilewise.client.render.gpu import gpu_list

    with TilewiseClient(server) as client:
        answer = client.list_gpus()
    write(to_json(answer) if form == "json" else gpu_list(answer), output)


@gpus.command()
@click.argument("gpu")
@asking
def show(gpu: str, server: str | None, form: str, output: str | None) -> None:
    """Show everything that is known about GPU, each figure with its source."""
    from tilewise.client.render.data import to_json
    from tilewise.client.render.gpu import gpu_page

    with TilewiseClient(server) as client:
        answer = client.get_gpu(gpu)
        calibrations = client.list_calibrations(answer.gpu.sku).calibrations
    write(to_json(answer) if form == "json" else gpu_page(answer.gpu, calibrations), output)
