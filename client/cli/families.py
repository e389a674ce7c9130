"""tilewise families: which models are read."""

from __future__ import annotations

import click

from tilewise.client.cli.options import form_option, output_option, write


@click.command()
@click.argument("family", required=False)
@form_option()
@output_option
def families(family: str | None, form: str, output: str | None) -> None:
    """List the families of models that are read: what of them, by which source, whether the program of operators was compared with
    the framework's own, and what is refused. FAMILY is a model_type; without it, all are listed."""
    from tilewise.client.render.families import as_json, as_text
    from tilewise.server.architecture.listing import listing, listings

    found = listings() if family is None else [listing(family)]
    write(as_json(found) if form == "json" else as_text(found), output)
