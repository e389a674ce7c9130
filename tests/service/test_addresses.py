"""What people write as a server's address, and what they are told where nothing answers; what a server logs of itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tilewise.client.address import parsed
from tilewise.client.cli import main

Serve = Callable[..., str]
Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Exit code and errors of `tilewise gpus list --server ADDRESS ...`, with nothing in the environment before or after."""
    for name in ("TILEWISE_CA", "TILEWISE_INSECURE", "TILEWISE_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def asked(server: str, *options: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main(["gpus", "list", "--server", server, *map(str, options)])
        return int(end.value.code or 0), capfd.readouterr().err

    yield asked
    os.environ.pop("TILEWISE_CA", None)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("localhost", ("localhost:7337", None)),
        ("localhost:80", ("localhost:80", None)),
        ("[::1]", ("[::1]:7337", None)),
        ("https://tiles.example.org", ("tiles.example.org:443", True)),
        ("https://tiles.example.org:7337/", ("tiles.example.org:7337", True)),
        ("http://10.0.0.1", ("10.0.0.1:7337", False)),
        ("dns:///tilewise:7337", ("dns:///tilewise:7337", None)),
        ("unix:/run/tilewise", ("unix:/run/tilewise", None)),
    ],
)
def test_an_address_is_understood_as_it_is_written(written: str, meant: tuple[str, bool | None]) -> None:
    assert parsed(written) == meant


def test_tls_without_its_authority_names_the_option_that_is_missing(serve: Serve, pem: Any, ask: Ask) -> None:
    server = serve(tls_cert=str(pem.cert), tls_key=str(pem.key))
    code, err = ask(server)
    assert code == 3 and f"error: the server at {server} speaks TLS: --ca FILE names" in err
    code, err = ask(f"https://{server}")
    assert code == 3 and "of an authority that is not known here: --ca FILE" in err
    assert ask(server, "--ca", pem.ca)[0] == ask(f"https://{server}", "--ca", pem.ca)[0] == 0


def test_a_server_without_tls_says_so(serve: Serve, ask: Ask) -> None:
    server = serve()
    assert ask(f"http://{server}")[0] == 0
    code, err = ask(f"https://{server}")
    assert code == 3 and f"error: the server at {server} speaks no TLS: write http://{server}\n" in err


def test_nothing_that_answers_says_how_to_start_it(ask: Ask) -> None:
    code, err = ask("127.0.0.1:1")
    assert (
        code == 3
        and err == "error: no server answers at 127.0.0.1:1: `tilewise serve --address HOST:PORT` starts one\n"
    )


def test_a_server_logs_its_start_its_address_and_its_end() -> None:
    command = [sys.executable, "-m", "tilewise", "serve", "--address", "127.0.0.1:0", "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = [server.stderr.readline() for _ in range(3)]
        server.send_signal(signal.SIGTERM)
        said += server.stderr.readlines()
    lines = [json.loads(line) for line in said if line.startswith("{")]
    assert [line["message"] for line in lines] == ["starting", "serving", "stopping", "stopped"]
    assert f"serving on {lines[1]['address']}\n" in said and lines[1]["database"] and server.returncode == 0
