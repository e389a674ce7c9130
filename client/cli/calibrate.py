"""`tilewise calibrate`: measure a GPU, look at a calibration, compare two, hand one to a server."""

from __future__ import annotations

import re
from pathlib import Path

import click

SECONDS = {"s": 1, "m": 60, "h": 3600}


class Duration(click.ParamType):
    """10m, 90s, 1h or a bare number of seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if not found:
            self.fail(f"{value!r} is no duration; write 90s, 10m or 1h", param, ctx)
        return float(found[1]) * SECONDS[found[2] or "s"]


@click.group()
def calibrate() -> None:
    """Bring a new GPU: measure it, review the result, publish it."""


@calibrate.command()
@click.option("--sku", required=True, help="SKU of this GPU, such as h100-sxm5-80gb (tilewise gpus list).")
@click.option(
    "--budget", type=Duration(), default="10m", show_default=True, metavar="<time>", help="Wall time, all in."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("calibration-run"), show_default=True,
              help="Folder of the points; a killed run that finds its points there goes on.")  # fmt: skip
@click.option(
    "--device", type=click.Choice(["", "cpu"]), default="", help="cpu rehearses the whole path on tiny sizes."
)
@click.option("--only", default="", metavar="FAMILY[,...]", help="Measure these families alone.")
@click.option("--list", "list_only", is_flag=True, help="Print the plan and stop.")
@click.option(
    "--allow-nonproduction", is_flag=True, help="Measure what the guard refuses; the result is marked for ever."
)
def run(
    sku: str, budget: float, output: Path, device: str, only: str, list_only: bool, allow_nonproduction: bool
) -> None:
    """Measure this machine's GPU within a time budget."""
    from tilewise.calibration import start

    families = tuple(name for name in only.split(",") if name)
    request = start.Request(
        sku=sku, budget_s=budget, output=output, device=device, only=families, allow_nonproduction=allow_nonproduction
    )
    if list_only:
        click.echo("\n".join(start.listing(request)))
        return
    calibration = start.start(request)
    if calibration is not None:
        click.echo(str(calibration.folder))
