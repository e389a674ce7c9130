"""tilewise check: the gate of configurations in CI."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import click

from tilewise.client.cli.options import form_option, judging, option, output_option, server_option, write
from tilewise.client.client import TilewiseClient
from tilewise.client.gate import verdict
from tilewise.client.gate.inputs import NothingToCheck, Place, request
from tilewise.client.render.gate import FORMS, rendered
from tilewise.client.render.gate.common import About
from tilewise.v1.check_pb2 import CheckRequest, CheckResponse

SUMMARY = "GITHUB_STEP_SUMMARY"  # a file to which a step of a GitHub workflow appends markdown
SUMMARY_BYTES = 1 << 20  # GitHub's limit for a step


@click.command()
@judging
@option(
    "--base",
    metavar="REF",
    help="Compare with this git commit, read without a checkout; REF... is where HEAD left REF.",
)
@option(
    "--base-file",
    metavar="PATH",
    help="Compare with a config, a saved `predict --format json`, or a folder of configs.",
)
@form_option(FORMS)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FORM=FILE",
    help="Write the answer in another form too; several times.",
)
@output_option
@option("--strict/--no-strict", default=False, help="What is uncertain fails; what is not judged is exit code 3.")
@option("--exit-zero/--no-exit-zero", default=False, help="Report broken budgets, but exit with 0.")
@click.option(
    "--update-budget", is_flag=True, help="Lower the policy's absolute limits to what is reached now; never raise one."
)
@option(
    "--calibration",
    default="",
    metavar="ID",
    help="Answer by this calibration, or by the `datasheet` alone; unset: the active one.",
)
@option(
    "--date", "day", default="", metavar="YYYY-MM-DD", help="Day on which allowances are judged; unset: today (UTC)."
)
@click.option(
    "--init", "first", is_flag=True, help="Write a tilewise.toml for the configurations found here, and stop."
)
@click.option("--schema", is_flag=True, help="Print the JSON schema of tilewise.toml, for editors, and stop.")
@server_option
def check(
    configs: tuple[str, ...],
    policy: str | None,
    base: str | None,
    base_file: str | None,
    form: str,
    reports: tuple[str, ...],
    output: str | None,
    strict: bool,
    exit_zero: bool,
    update_budget: bool,
    calibration: str,
    day: str,
    first: bool,
    schema: bool,
    server: str | None,
) -> int:
    """Judge changed configurations against the budgets of tilewise.toml.

    CONFIG: the files to judge; without one all that the policy's patterns match. Without a base no max_regression is
    judged. Exit codes: 0 all hold (or warnings), 1 a budget is broken, 2 bad input, 3 not evaluated (with --strict: or not
    judged), 5 nothing to check.
    """
    if schema:
        return _schema(output)
    if first:
        return _init()
    if base is not None and base_file is not None:
        raise click.UsageError("--base and --base-file exclude each other")
    written = [_report(each) for each in reports]
    place = Place.of(policy)
    try:
        asked = request(place, configs, base, base_file, day, calibration)
    except NothingToCheck as error:
        return _nothing(error)
    with TilewiseClient(server) as client:
        answer = client.check(asked)
    about = About(asked.policy_path, _command(asked, base, base_file), strict)
    write(rendered(answer, form, about), output)
    for name, file in written:
        write(rendered(answer, name, about), file)
    _summarise(answer, about)
    if update_budget:
        _ratchet(place, asked, answer)
    code = verdict.exit_code(answer, strict=strict)
    return verdict.PASSED if exit_zero and code == verdict.FAILED else code


def _schema(output: str | None) -> int:
    from tilewise.server.gate.schema import schema

    write(json.dumps(schema(), indent=2) + "\n", output)
    return verdict.PASSED


def _init() -> int:
    from tilewise.client.gate.init import init

    try:
        path, what = init(Path.cwd())
    except NothingToCheck as error:
        return _nothing(error)
    click.echo(f"{path.name}: {what}; `tilewise check --base REF` judges by it")
    return verdict.PASSED


def _nothing(error: NothingToCheck) -> int:
    click.echo(f"error: {error.message}", err=True)
    return verdict.NOTHING


def _report(text: str) -> tuple[str, str]:
    """ "sarif=out.sarif" -> ("sarif", "out.sarif")."""
    form, _, file = text.partition("=")
    if form not in FORMS or not file:
        raise click.BadParameter(f"{text!r} must be FORM=FILE with a form of {', '.join(FORMS)}", param_hint="--report")
    return form, file


def _command(asked: CheckRequest, base: str | None, base_file: str | None) -> str:
    """What gives the same answer again, in the folder where paths start."""
    named = {
        "--policy": asked.policy_path,
        "--base": base,
        "--base-file": base_file,
        "--calibration": asked.calibration,
    }
    stated = [f"{option} {shlex.quote(value)}" for option, value in named.items() if value]
    return " ".join(["tilewise check", *stated, f"--date {asked.date}"])


def _summarise(answer: CheckResponse, about: About) -> None:
    """Append to the summary of a GitHub job, where this is one."""
    if not (path := os.environ.get(SUMMARY)):
        return
    text = rendered(answer, "markdown", about)
    room = SUMMARY_BYTES - (os.path.getsize(path) if os.path.exists(path) else 0)
    if len(text.encode()) < room:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def _ratchet(place: Place, asked: CheckRequest, answer: CheckResponse) -> None:
    from tilewise.client.gate.ratchet import lowered

    text, changes = lowered(asked.policy_toml, answer.comparisons)
    if changes:
        place.policy.write_text(text, encoding="utf-8")
    for each in changes:
        click.echo(f"{asked.policy_path}: {each}", err=True)
