"""`tilewise calibrate`: measure a GPU, look at a calibration, compare two, hand one to a server."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewise.client.cli.options import comma_separated, form_option, option, output_option, server_option, write

if TYPE_CHECKING:
    from tilewise.hwdb.calibration import Calibration

SECONDS = {"s": 1, "m": 60, "h": 3600}
FOLDER = click.Path(path_type=Path, file_okay=False)
keeper_option = partial(server_option, about="The server that keeps the calibrations.", required=True)
reason_option = option("--reason", default="", help="Why, for the server's audit log.")


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
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
@option("--sku", required=True, help="SKU of this GPU, such as h100-sxm5-80gb (`tilewise gpus list`).")
@option("--budget", type=Duration(), default="10m", show_default=True, metavar="TIME", help="Wall time, all in.")
@option("-o", "--output", type=FOLDER, default="calibration", show_default=True,
        help="Folder for the points and the calibration; a killed run that finds its points there goes on.")  # fmt: skip
@option("--device", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True,
        help="cpu rehearses the whole path on tiny sizes; the result is marked non-production.")  # fmt: skip
@option("--only", default="", metavar="FAMILY[,...]", help="Measure these families alone.")
@option("--list", "list_only", is_flag=True, help="Print the plan and stop.")
@option("--allow-nonproduction", is_flag=True, help="Measure what the guard refuses; the result is marked for ever.")
@option(
    "--fit/--no-fit",
    "fit_models",
    default=True,
    show_default=True,
    help="Fit models; `calibrate fit` can do it elsewhere.",
)
def run(
    sku: str,
    budget: float,
    output: Path,
    device: str,
    only: str,
    list_only: bool,
    allow_nonproduction: bool,
    fit_models: bool,
) -> None:
    """Measure this machine's GPU within a time budget, and fit the models."""
    from tilewise.calibration import start

    families = tuple(name for name in only.split(",") if name)
    request = start.Request(
        sku=sku,
        budget_s=budget,
        output=output,
        device=device,
        only=families,
        allow_nonproduction=allow_nonproduction,
        fit=fit_models,
    )
    if list_only:
        click.echo("\n".join(start.listing(request)))
        return
    calibration = start.start(request)
    if calibration is not None:
        click.echo(str(calibration.folder))
        host = calibration.model("launch").get("eager")
        if host:
            issue = f"{1e6 * host['issue_s'][1]:.0f}"
            click.echo(f"this host takes {issue} us to issue a kernel of eager code (--issue-us {issue})", err=True)


@calibrate.command()
@option("--sku", required=True, help="SKU of this GPU.")
@option("-o", "--output", type=FOLDER, default="calibration", show_default=True, help="The --output of `run`.")
def counters(sku: str, output: Path) -> None:
    """Read low-level counters of thirty kernels through ncu or rocprofv3, after `run`; then `finish` again."""
    from tilewise.calibration.counters import collect
    from tilewise.calibration.target import target
    from tilewise.hwdb.database import Database

    database = Database.packaged()
    click.echo(str(collect(target(database.sku(database.resolve(sku).sku)), output / "points")))


@calibrate.command(hidden=True)
@click.argument("works", type=click.Path(dir_okay=False))
def counted(works: str) -> None:
    """What `counters` lets a profiler run."""
    from tilewise.calibration.benchmarks.counted import run

    run(works)


@calibrate.command()
@click.argument("folders", type=FOLDER, nargs=-1, required=True)
@option("-o", "--output", type=FOLDER, help="Where the calibration goes; unset: beside the points.")
@option("--fit/--no-fit", "fit_models", default=True, show_default=True, help="Fit models.")
def finish(folders: tuple[Path, ...], output: Path | None, fit_models: bool) -> None:
    """Make a calibration of the points in FOLDERS (each an --output of `run`, or a calibration), also of runs cut short.

    The first describes it; the others bring points and families that it lacks, such as collectives.
    """
    from tilewise.calibration.start import finish

    runs = [folder / "points" if (folder / "points").is_dir() else folder for folder in folders]
    click.echo(str(finish(runs, output or runs[0].parent, fit_models).folder))


@calibrate.command()
@click.argument("folder", type=FOLDER)
@option("-o", "--output", type=FOLDER, help="Where the new calibration goes; unset: beside the old one.")
@option("--only", default="", metavar="MODEL[,...]", help="Fit these models; the others stay as they are.")
def fit(folder: Path, output: Path | None, only: str) -> None:
    """Fit the models of calibration FOLDER anew: the same measurements, a new id."""
    from tilewise.calibration.fit import fit
    from tilewise.hwdb.calibration import Calibration

    some = tuple(name for name in only.split(",") if name)
    click.echo(str(fit(Calibration.open(folder), output or folder.parent, some).folder))


@calibrate.command("import")
@option("--from", "source", type=click.Choice(["aiconfigurator", "csv"]), required=True,
        help="aiconfigurator: the public package (extra `published`); csv: plain tables, named as TABLES.")  # fmt: skip
@option("--sku", required=True, metavar="SKU[,SKU]", help="GPU that the rows are about, or several.")
@click.argument("tables", type=click.Path(path_type=Path, dir_okay=False, exists=True), nargs=-1)
@option("-o", "--output", type=FOLDER, default="calibration", show_default=True, help="Folder for the calibrations.")
@option("--date", default="", metavar="YYYY-MM-DD", help="Date of the calibration; unset: today.")
def import_(source: str, sku: str, tables: tuple[Path, ...], output: Path, date: str) -> None:
    """Make a calibration of trust `published` of what others measured: models, sources and errors, none of their rows."""
    from tilewise.calibration.published import imports

    for name in comma_separated(sku):
        click.echo(str(imports.build(source, tables, name, output, date).folder))


@calibrate.command()
@click.argument("calibration")
@output_option
@form_option()
def show(calibration: str, form: str, output: str | None) -> None:
    """Show the card of CALIBRATION, an id of the packaged database or a folder."""
    from tilewise.client.render.calibration import page
    from tilewise.hwdb.calibration import canonical

    found = _find(calibration)
    write(page(found) if form == "text" else canonical(found.card).decode(), output)


@calibrate.command()
@click.argument("old")
@click.argument("new")
@output_option
def compare(old: str, new: str, output: str | None) -> None:
    """Compare two calibrations (ids or folders): same, faster, slower, or cannot tell."""
    from tilewise.client.render.calibration import differences
    from tilewise.hwdb.compare import compare

    before, after = _find(old), _find(new)
    write(differences(compare(before, after), before.id, after.id), output)


@calibrate.command()
@click.argument("folder", type=FOLDER)
@keeper_option
@option("--promote", is_flag=True, help="Make it answer at once; unset: it stays a candidate.")
@reason_option
def publish(folder: Path, server: str, promote: bool, reason: str) -> None:
    """Upload calibration FOLDER, have the server check it, and with --promote make it answer."""
    from tilewise.client.publish import publish
    from tilewise.hwdb.calibration import Calibration

    for line in publish(Calibration.open(folder), server, promote=promote, reason=reason):
        click.echo(line)


@calibrate.command()
@click.argument("sku")
@keeper_option
@output_option
@form_option()
def history(sku: str, server: str, form: str, output: str | None) -> None:
    """Show who uploaded, published and rolled back the calibrations of SKU on a server, the newest first."""
    from tilewise.client.publish import publications
    from tilewise.client.render.calibration import audit_log
    from tilewise.client.render.data import to_json

    found = publications(sku, server)
    write(to_json(found) if form == "json" else audit_log(found), output)


@calibrate.command()
@click.argument("sku")
@keeper_option
@option("--to", "id", default="", metavar="ID", help="The calibration to go back to; unset: the one before.")
@reason_option
def rollback(sku: str, server: str, id: str, reason: str) -> None:
    """Make an earlier calibration of SKU answer again."""
    from tilewise.client.publish import rollback

    click.echo(rollback(sku, server, id, reason))


@calibrate.command()
@click.argument("sku")
@click.argument("id")
@keeper_option
@reason_option
def delete(sku: str, id: str, server: str, reason: str) -> None:
    """Take calibration ID of SKU away from a server. It must not answer; sent again it is back."""
    from tilewise.client.publish import delete

    click.echo(delete(sku, id, server, reason))


def _find(name: str) -> Calibration:
    """A folder, or the id of a packaged calibration. Raises NotFound, listing what there is."""
    from tilewise.hwdb.calibration import Calibration
    from tilewise.hwdb.database import Database
    from tilewise.hwdb.errors import NotFound

    if Path(name).is_dir():
        return Calibration.open(name)
    database = Database.packaged()
    every = {id: sku for sku in database.skus() for id in database.calibrations(sku)}
    if name not in every:
        known = ", ".join(every) or "none is packaged"
        raise NotFound(f"no calibration {name!r}, and no folder; known: {known}", reason="CALIBRATION_NOT_FOUND")
    return Calibration.open(database.folder / "calibrations" / every[name] / name)
