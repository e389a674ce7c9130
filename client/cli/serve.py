"""tilewise serve: answer over gRPC."""

from __future__ import annotations

from pathlib import Path

import click

from tilewise.client.cli.options import option


@click.command()
@option(
    "--address", default="127.0.0.1:7337", show_default=True, metavar="HOST:PORT", help="Where to listen; port 0: any."
)
@option("--insecure", is_flag=True, help="Allow an address that other machines reach, without TLS.")
@option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder that keeps uploaded calibrations; unset: none.",
)
def serve(address: str, insecure: bool, store: Path | None) -> None:
    """Answer over gRPC until told to stop (SIGTERM); what is in flight is finished first."""
    from tilewise.server.app import serve

    for bound in serve(address, insecure=insecure, store=store):
        click.echo(f"serving on {bound}", err=True)
