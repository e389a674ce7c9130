"""tilewise diff: what a new calibration does to the verdicts of a policy."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from tilewise.client.cli.options import asking, judging, option, write
from tilewise.client.client import TilewiseClient
from tilewise.client.gate.inputs import Place, request
from tilewise.hwdb.errors import NotAvailable
from tilewise.v1.check_pb2 import CheckRequest, CheckResponse

FLIPPED = 1  # exit code, as of diff(1): there are differences


@click.command()
@click.option("--hwdb", required=True, metavar="OLD..NEW",
              help="Two calibrations: an id, a calibration's folder, `active`, or `datasheet` for none.")  # fmt: skip
@judging
@option("--base", metavar="REF", help="Judge regressions against this commit too; unset: absolute limits alone.")
@asking
def diff(
    configs: tuple[str, ...],
    hwdb: str,
    policy: str | None,
    base: str | None,
    server: str | None,
    form: str,
    output: str | None,
) -> int:
    """Judge the same configurations by two calibrations and show which numbers move and which verdicts flip.

    Exit codes: 0 no verdict flips, 1 some do, 2 bad input, 3 not evaluated.
    """
    old, separator, new = hwdb.partition("..")
    if not (old and separator and new):
        raise click.BadParameter(f"{hwdb!r} must be OLD..NEW, as 2026-11-28-7206cb32..active", param_hint="--hwdb")
    asked = request(Place.of(policy), configs, base, None, "", "")
    with TilewiseClient(server) as client:
        answers = [_answer(client, asked, side, server) for side in (old, new)]
    from tilewise.client.render.gate import flips

    pairs, (old, new) = flips.paired(*answers), (Path(old).name, Path(new).name)
    write(flips.to_json(pairs, old, new) if form == "json" else flips.to_text(pairs, old, new), output)
    return FLIPPED if any(pair.flips for pair in pairs) else 0


def _answer(client: TilewiseClient, asked: CheckRequest, calibration: str, server: str | None) -> CheckResponse:
    if Path(calibration).is_dir():
        if server is not None:
            message = f"{calibration} is a folder on this machine; a server knows calibrations by their id"
            raise NotAvailable(message, reason="EMBEDDED_ONLY", field="hwdb")
        return _from_folder(asked, Path(calibration))
    question = CheckRequest(calibration="" if calibration == "active" else calibration)
    question.MergeFrom(asked)
    return client.check(question)


def _from_folder(asked: CheckRequest, folder: Path) -> CheckResponse:
    """Answered by a calibration that is not published yet, for its own GPU."""
    from tilewise.hwdb.calibration import Calibration
    from tilewise.hwdb.database import Database
    from tilewise.hwdb.gpu import Gpu
    from tilewise.server.messages.gate import check_response

    found, database = Calibration.open(folder), Database.packaged()

    def gpu_of(name: str) -> Gpu:
        gpu = database.gpu(name)
        return replace(gpu, calibration=found) if gpu.sku.name == found.sku else gpu

    return check_response(asked, gpu_of, database.version)
