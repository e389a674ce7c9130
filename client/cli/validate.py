"""tilewise validate: predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewise.client.cli.options import asking, gpu_option, option, write
from tilewise.hwdb.errors import InvalidInput, NotAvailable, OutOfRange

if TYPE_CHECKING:
    from tilewise.hwdb.gpu import Gpu
    from tilewise.server.validate.validate import Validation

TOO_FAR_OFF = 1  # exit code where --fail-above is exceeded
FILE = click.Path(path_type=Path, dir_okay=False)


class Percent(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """5% or 0.05."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if number < 0:
            self.fail(f"{value!r} is no share; write 5% or 0.05", param, ctx)
        return number


@click.command()
@click.argument("tables", metavar="TRUTH.csv...", nargs=-1, required=True, type=FILE)
@gpu_option("The GPU that was measured; rows of others are skipped.", "SKU")
@option("--calibration", default="", metavar="ID|FOLDER", help="Unset: the active one.")
@option("--configs", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
        help="Holds MODEL.json of the models that a table names; unset: configs/ beside the table.")  # fmt: skip
@option("--rows", type=FILE, metavar="OUT.csv", help="Write each row back with its prediction.")
@option("--plot", type=FILE, metavar="FILE.png|svg", help="Draw predicted against measured (needs the extra `plots`).")
@option("--fail-above", type=Percent(), metavar="SHARE",
        help="Exit with 1 where a table's mean absolute error exceeds this, as 5%.")  # fmt: skip
@asking
def validate(
    tables: tuple[Path, ...],
    gpu: str,
    calibration: str,
    configs: Path | None,
    rows: Path | None,
    plot: Path | None,
    fail_above: float | None,
    server: str | None,
    form: str,
    output: str | None,
) -> None:
    """Set predictions beside measured times: error, bias and interval coverage by operator, precision, layout and size.

    TRUTH.csv is recognised by its columns: GEMMs, grouped GEMMs, attention, memory-bound kernels, collectives, steps and
    memory of whole models. Exit code 1: --fail-above is exceeded; 3: no row could be judged.
    """
    if server is not None:
        message = "validate runs in this process alone: leave out --server (and TILEWISE_SERVER)"
        raise NotAvailable(message, reason="EMBEDDED_ONLY", field="server")
    if rows is not None and len(tables) > 1:
        raise InvalidInput("--rows writes one table back: name one TRUTH.csv", reason="BAD_TABLE", field="rows")
    found = _validated(tables, _gpu(gpu, calibration), configs)
    write(_rendered(found, form), output)
    if rows is not None:
        from tilewise.client.render.validation import rows_csv

        rows.write_text(rows_csv(found[0]), encoding="utf-8", newline="")
    if plot is not None:
        from tilewise.client.render.scatter import draw

        draw(found, plot)
    _verdict(found, fail_above)


def _gpu(name: str, calibration: str) -> Gpu:
    """The GPU with a calibration of the database, or with one that lies in a folder and is not published yet."""
    from tilewise.hwdb.calibration import Calibration
    from tilewise.hwdb.database import Database
    from tilewise.hwdb.gpu import Gpu

    if not calibration or not Path(calibration).is_dir():
        return Database.packaged().gpu(name, calibration)
    sku, found = Database.packaged().gpu(name).sku, Calibration.open(Path(calibration))
    if found.sku != sku.name:
        message = f"the calibration in {calibration} is of {found.sku}, not of {sku.name}"
        raise InvalidInput(message, reason="BAD_CALIBRATION", field="calibration")
    return Gpu(sku, found)


def _validated(tables: Sequence[Path], gpu: Gpu, configs: Path | None) -> list[Validation]:
    from tilewise.client.cli.texts import read_table
    from tilewise.server.validate.validate import validate

    return [
        validate(read_table(table), table.name, gpu, partial(_config, configs or table.parent / "configs"))
        for table in tables
    ]


def _config(folder: Path, model: str) -> str | None:
    """The text of a model's config; a name is a file of the folder, never a path."""
    path = folder / f"{model}.json"
    return path.read_text(encoding="utf-8") if path.name == f"{model}.json" and path.is_file() else None


def _rendered(found: Sequence[Validation], form: str) -> str:
    from tilewise.client.render.validation import text, to_json

    return to_json(found) if form == "json" else text(found)


def _verdict(found: Sequence[Validation], fail_above: float | None) -> None:
    """Refuse to call it a success where nothing was judged; exit 1 where an error is too large."""
    from tilewise.server.validate.outcome import errors

    means = []
    for validation in found:
        quantities = validation.outcome.quantities
        means += [error.mean for error in map(errors, quantities) if error is not None]
    if not means:
        raise OutOfRange("no row could be judged; --rows OUT.csv says why for each", reason="NOTHING_JUDGED")
    if fail_above is not None and max(means) > fail_above:
        click.echo(f"mean absolute error {max(means):.2%} exceeds {fail_above:.2%}", err=True)
        click.get_current_context().exit(TOO_FAR_OFF)
