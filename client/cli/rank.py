"""tilewise rank: one model on many GPUs in one call, each in the precision that suits it best."""

from __future__ import annotations

from typing import Any

import click

from tilewise.client.cli.options import as_option, asking, defaults_option, model_argument, option, set_option, write
from tilewise.client.cli.texts import read_model
from tilewise.client.cli.workload import workload_of, workload_options
from tilewise.client.client import TilewiseClient
from tilewise.client.ranking import EVERY, orders, ranked, refused
from tilewise.hwdb.errors import InvalidInput


@click.command()
@model_argument()
@option("--gpu", default="", metavar="SKU[,SKU]", help="GPUs to rank; unset: every one that a calibration answers for.")
@option("--precisions", default="", metavar="FORMAT[,FORMAT]", help=f"To choose from; unset: of {', '.join(EVERY)} what a GPU has.")  # fmt: skip
@option(
    "--batches", default="", metavar="N[,N]", help="Rank at each of these batches, and say where the order changes."
)
@workload_options()
@set_option
@defaults_option
@as_option
@asking
def rank(
    config: str,
    gpu: str,
    precisions: str,
    batches: str,
    overrides: tuple[str, ...],
    allow_defaults: bool,
    family: str,
    server: str | None,
    form: str,
    output: str | None,
    **chosen: Any,
) -> None:
    """Rank GPUs for the model that CONFIG describes: tokens a second and a joule, and the precision each should use.

    GPUs whose difference is within the error of the predictions share a place: their order is not known.
    """
    from tilewise.client.render.data import dumps
    from tilewise.client.render.ranking import data, page

    sizes = [_size(word) for word in batches.split(",")] if batches else []
    named, formats = ([each.strip() for each in text.split(",") if each.strip()] for text in (gpu, precisions))
    with TilewiseClient(server) as client:
        found = ranked(
            client,
            read_model(config, overrides, allow_defaults=allow_defaults, family=family),
            workload_of(chosen),
            named,
            formats,
            sizes,
        )
    rankings = orders(found)
    write(dumps(data(rankings, found)) if form == "json" else page(rankings, found), output)
    if not any(entry.tokens_per_s for entry in found):
        raise refused(found)


def _size(word: str) -> int:
    if not word.strip().isdigit() or int(word) < 1:
        raise InvalidInput(f"batch {word!r} is no whole number from 1 up", reason="INVALID_WORKLOAD", field="batches")
    return int(word)
