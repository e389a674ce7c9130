"""tilewise token: make a token for a caller of a server."""

from __future__ import annotations

import click


@click.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["reader", "calibrator", "admin"]),
    default="reader",
    show_default=True,
    help="What it may do.",
)
@click.option("--tenant", default="", help="Whose calibrations it sees besides the shared ones; unset: none.")
@click.option(
    "--expires", metavar="YYYY-MM-DD", default="", help="First day on which it no longer works; unset: never."
)
def token(name: str, role: str, tenant: str, expires: str) -> None:
    """Make a token for NAME. The token goes to stdout, once and nowhere else; the entry for the server's file of callers,
    which holds only its hash, to stderr.

    tilewise token ci-fleet --tenant team-a 2>> callers.toml | store-it-safely
    """
    from datetime import date

    from tilewise.hwdb.errors import InvalidInput
    from tilewise.server.service.identity.callers import digest, new_token

    try:
        last = date.fromisoformat(expires) if expires else None
    except ValueError as error:
        raise InvalidInput(f"expires {expires!r} must be a date such as 2027-06-30", reason="BAD_DATE") from error
    made = new_token()
    lines = ["[[caller]]", f'name = "{name}"', f'role = "{role}"', f'token_sha256 = "{digest(made)}"']
    lines += [f'tenant = "{tenant}"'] if tenant else []
    lines += [f"expires = {last}"] if last else []
    click.echo("\n" + "\n".join(lines), err=True)
    click.echo(made)
