"""tilewise serve: answer over gRPC."""

from __future__ import annotations

from typing import Any

import click

from tilewise.client.cli.settings import server_settings


@click.command()
@server_settings
def serve(**settings: Any) -> None:
    """Answer over gRPC until told to stop (SIGTERM); what is in flight is finished first."""
    from tilewise.server.service.serve import serve
    from tilewise.server.service.settings import Settings

    for bound in serve(Settings(**settings)):
        click.echo(f"serving on {bound}", err=True)
