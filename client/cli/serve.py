"""tilewise serve: answer over gRPC."""

from __future__ import annotations

import click

from tilewise.client.cli.options import option


@click.command()
@option(
    "--address", default="127.0.0.1:7337", show_default=True, metavar="HOST:PORT", help="Where to listen; port 0: any."
)
@option("--insecure", is_flag=True, help="Allow an address that other machines reach, without TLS.")
def serve(address: str, insecure: bool) -> None:
    """Answer over gRPC until told to stop (SIGTERM); what is in flight is finished first."""
    from tilewise.server.app import serve

    for bound in serve(address, insecure=insecure):
        click.echo(f"serving on {bound}", err=True)
