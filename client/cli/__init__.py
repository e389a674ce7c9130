"""The command line. Every command lives in a module of its own and is imported only when it runs.

Exit codes: 0 done; 1 a budget of `check` broken, a verdict flipped, `validate --fail-above` exceeded, `predict --must-fit`
too large; 2 wrong usage or bad input; 3 could not evaluate (server unreachable, out of range, a bug); 5 `check` found nothing to check; 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

import click

# name: (where the click command is, what `tilewise --help` says about it)
COMMANDS: dict[str, tuple[str, str]] = {
    "predict": ("tilewise.client.cli.predict:predict", "Time, walls, MFU and memory of one step of a model."),
    "recommend": (
        "tilewise.client.cli.recommend:recommend",
        "Nearby shapes, ways to run and formats that are faster, and why.",
    ),
    "sweep": ("tilewise.client.cli.sweep:sweep", "Time or MFU against one size or two, with the cliffs."),
    "check": ("tilewise.client.cli.check:check", "Judge changed configurations against the budgets of tilewise.toml."),
    "diff": ("tilewise.client.cli.diff:diff", "Which verdicts of a policy a new calibration flips."),
    "rank": ("tilewise.client.cli.rank:rank", "One model on many GPUs: which is fastest, in which precision."),
    "families": ("tilewise.client.cli.families:families", "Which models are read, and what of them is not."),
    "gpus": ("tilewise.client.cli.gpus:gpus", "Which GPUs are known, how well, and from where."),
    "calibrate": ("tilewise.client.cli.calibrate:calibrate", "Bring a new GPU: measure it, review, publish."),
    "validate": (
        "tilewise.client.cli.validate:validate",
        "Predicted against measured: errors, bias and interval coverage.",
    ),
    "mfu": ("tilewise.client.cli.mfu:mfu", "Turn a measured rate into an MFU with a named peak and convention."),
    "explain": ("tilewise.client.cli.explain:explain", "What an error code, a wall or a term means."),
    "serve": ("tilewise.client.cli.serve:serve", "Answer over gRPC."),
    "config": ("tilewise.client.cli.config:config", "What a server would be set to, and by what."),
    "token": ("tilewise.client.cli.token:token", "Make a token for a caller of a server."),
    "completion": ("tilewise.client.cli.completion:completion", "Let bash, zsh or fish complete commands and options."),
}


# Objects until the collector looks for rings among them: a question makes fewer, and looking takes a fifteenth of its time
COLLECTED = 200_000
KEEPS = ("serve", "calibrate")  # commands that hold what only Python's own way to end gives back


class LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command where there is none of that name."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            raise click.UsageError(
                f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""), ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in COMMANDS.items()])


def print_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    import tilewise
    from tilewise.client.render.data import SCHEMA_VERSION
    from tilewise.hwdb.database import Database

    click.echo(f"tilewise {tilewise.__version__}, database {Database.packaged().version}, schema {SCHEMA_VERSION}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=print_version, help="Print versions."
)
@click.option("--debug", is_flag=True, envvar="TILEWISE_DEBUG", help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """How fast a model's shape will run on a production GPU, before the model exists."""
    ctx.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; an error is one line, and a hint where there is one.

    arguments: unset: those of this process, which then ends with them
    """
    ours = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    if ours:
        gc.set_threshold(COLLECTED)
    try:
        code = cli.main(arguments, prog_name="tilewise", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 0
    except Exception as error:
        if "--debug" in arguments and not isinstance(error, click.ClickException | click.Abort):
            raise
        from tilewise.client.cli.failure import report

        code = report(error)
    code = code if isinstance(code, int) else 0
    if ours and not set(KEEPS).intersection(arguments):
        leave(code)
    sys.exit(code)


def leave(code: int) -> None:
    """End the process without taking all its objects apart first, an eighth of a question's time. Returns where output is lost."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # Python's own end says so
    os._exit(code)
