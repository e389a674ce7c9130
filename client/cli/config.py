"""tilewise config: what a server would be set to, and who says so."""

from __future__ import annotations

from typing import Any

import click

from tilewise.client.cli.options import form_option, output_option, write
from tilewise.client.cli.settings import server_settings, source_of


@click.group()
def config() -> None:
    """What `tilewise serve` would be set to, and by what."""


@config.command()
@output_option
@form_option()
@server_settings
@click.pass_context
def show(context: click.Context, /, form: str, output: str | None, **settings: Any) -> None:
    """Show every setting of `tilewise serve` with its source. Takes the same options, and fails where serve would."""
    import json

    from tilewise.server.service.settings import Settings

    checked = Settings(**settings)
    shown = {**settings, "store": checked.shown_store}
    rows = {name: {"value": value, "source": source_of(context, name)} for name, value in shown.items()}
    if form == "json":
        write(json.dumps(rows, indent=2) + "\n", output)
        return
    wide = max(map(len, rows))
    lines = [f"{name:{wide}}  {row['value']!s:24}  {row['source']}" for name, row in rows.items()]
    write("\n".join(line.rstrip() for line in lines) + "\n", output)
