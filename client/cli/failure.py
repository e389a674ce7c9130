"""What the command line says and returns when something goes wrong."""

from __future__ import annotations

import click

from tilewise.hwdb.errors import InvalidInput, NotAvailable, NotFound, TilewiseError, TooLarge
from tilewise.hwdb.texts import printable

USAGE, NOT_EVALUATED, INTERRUPTED = 2, 3, 130
# The question has to change: bad input. Every other TilewiseError means that a good question could not be evaluated.
BAD_INPUT = (InvalidInput, NotFound, NotAvailable, TooLarge)
EXTRAS = {"torch": "calibrate", "scipy": "calibrate", "matplotlib": "plots"}  # of packages that only some commands need


def report(error: Exception) -> int:
    """Print `error` as one line on stderr, with a hint where there is one, and return the exit code."""
    message, hint, code = describe(error)
    click.echo(f"error: {printable(' '.join(message.split()))}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    return code


def describe(error: Exception) -> tuple[str, str, int]:
    """Message, hint ("" where there is none) and exit code of an error."""
    if isinstance(error, TilewiseError):
        return with_flags(error), hint_of(error), USAGE if isinstance(error, BAD_INPUT) else NOT_EVALUATED
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"{error.name} is not installed: pip install 'tilewise[{EXTRAS[error.name]}]'", "", USAGE
    if isinstance(error, click.Abort):
        return "interrupted", "", INTERRUPTED
    if isinstance(error, click.exceptions.NoSuchOption | click.exceptions.NoSuchCommand):
        return error.format_message(), usage_hint(error), USAGE
    if isinstance(error, click.UsageError):
        return error.format_message(), usage_hint(error), USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), "", USAGE
    if isinstance(error, OSError):
        return f"{error.filename or 'file'}: {(error.strerror or str(error)).lower()}", "", USAGE
    return f"{type(error).__name__}: {error}", "this is a bug; --debug before the command shows where", NOT_EVALUATED


def with_flags(error: TilewiseError) -> str:
    """The message, with the option in place of a workload's field that is missing."""
    name = error.field.removeprefix("workload.")
    if not error.message.startswith(f"{name} is needed"):
        return error.message
    from tilewise.client.cli.workload import flag

    return flag(name) + error.message.removeprefix(name)


def hint_of(error: TilewiseError) -> str:
    from tilewise.client.cli.explain import entries

    if "hint" in error.metadata:
        return error.metadata["hint"]
    return f"`tilewise explain {error.reason}` tells more" if error.reason in entries() else ""


def usage_hint(error: click.UsageError) -> str:
    return f"`{error.ctx.command_path} --help` lists what is possible" if error.ctx else ""
