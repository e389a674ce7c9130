"""The clock of a running server jumps: part of break_service.py."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench_service import serving
from google.protobuf.message import Message

from tilewise.client import publish as publishing
from tilewise.client.client import TilewiseClient
from tilewise.client.publish import publications, publish
from tilewise.client.remote import Remote
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import TilewiseError
from tilewise.server.service.identity.callers import digest

SKU = "h100-sxm5-80gb"
Variant = Callable[[Path, str], Calibration]  # a small calibration under an id of its own


def clock(variant: Variant) -> None:
    """A token that expires in twelve hours, and an upload in the middle of which the clock jumps: on by 25 h, back by 50."""
    library = next(Path("/usr/lib").rglob("libfaketimeMT.so.1"), None)
    if library is None:
        print("clock: skipped, libfaketime is not installed (Debian: apt-get install faketime)")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        faked = {
            "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": f"{name}/clock", "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # as on a machine whose clock is set: CLOCK_MONOTONIC goes on
        }  # fmt: skip
        arguments = ("--store", f"{name}/store", "--tokens", callers(folder), "--stall-s", "20")
        jump(folder, "+0")
        with serving(*arguments, **faked) as (_, port):
            address = f"127.0.0.1:{port}"
            for number, (to, beside) in enumerate(
                (("+25h", None), ("-25h", None), ("+25h", serving(*arguments, **faked)))
            ):
                tell_jump(folder, address, to, variant(folder, str(number)), beside or nullcontext())
            jump(folder, "+0")
            log = publications(SKU, address).publications
            times = [entry.time.ToSeconds() for entry in log if entry.action == "publish"][::-1]
            print(
                f"  the log has the publications in order, at hours {[round((at - times[0]) / 3600) for at in times]}"
            )


def callers(folder: Path) -> str:
    """A file with one who may do everything, and one whose token expires in twelve hours."""
    os.environ["TILEWISE_TOKEN"] = "lasting"
    expires = (datetime.now(UTC) + timedelta(hours=12)).isoformat()
    entries = (("lasting", ""), ("expiring", f"expires = {expires}\n"))
    text = "".join(
        f'[[caller]]\nname = "{token}"\nrole = "admin"\ntoken_sha256 = "{digest(token)}"\n{more}'
        for token, more in entries
    )
    (folder / "callers.toml").write_text(text)
    return str(folder / "callers.toml")


def jump(folder: Path, to: str) -> None:
    """Set the clock of the servers, relative to the true time."""
    (folder / "next").write_text(to)
    (folder / "next").replace(folder / "clock")


def tell_jump(
    folder: Path, address: str, to: str, calibration: Calibration, beside: AbstractContextManager[object]
) -> None:
    """Upload one half, let the clock jump (and start another replica, which forgets old uploads), upload the other."""
    name = f"gpus/{SKU}/calibrations/{calibration.id}"
    messages = list(publishing._messages(calibration, name, {}))
    half = len(messages) // 2

    def slowly() -> Iterator[Message]:
        yield from messages[:half]
        while arrived(address, messages[0]) < sum(len(message.chunk.data) for message in messages[:half]):
            time.sleep(0.1)
        jump(folder, to)
        with beside:
            time.sleep(1)
        yield from messages[half:]

    remote = Remote(address)
    begin = time.monotonic()
    try:
        remote(publishing.SERVICE, "UploadCalibration", slowly())  # type: ignore[arg-type]
        seen = "the upload went on"
    except TilewiseError as error:
        seen = f"the upload was told {error.reason}"
    remote.close()
    took_s = time.monotonic() - begin
    last = list(publish(calibration, address, promote=True))[-1]
    print(f"clock: {to}: {seen} ({took_s:.1f} s); then: {last}; the expiring token: {expiring(address)}")


def arrived(address: str, header: Message) -> int:
    """Bytes of an upload that the server has."""
    remote = Remote(address)
    have = publishing._send(remote, iter([header]))  # type: ignore[list-item]
    remote.close()
    return sum(have.received_bytes.values())


def expiring(address: str) -> str:
    """What its owner is answered."""
    try:
        with TilewiseClient(address, token="expiring") as client:
            return f"answered for {client.get_gpu(SKU).gpu.sku}"
    except TilewiseError as error:
        return error.reason
