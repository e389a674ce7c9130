"""A server of each test's own, in this process, and what its callers bring along."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from tilewise.hwdb.calibration import Calibration, canonical, identify
from tilewise.hwdb.database import Database
from tilewise.server.service.app import Server, start
from tilewise.server.service.identity.callers import digest
from tilewise.v1.advisor_service_pb2 import PredictRequest
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import PHASE_PREFILL, Workload

ROOT = Path(__file__).resolve().parents[2]
Serve = Callable[..., str]
Callers = Callable[..., str]
PACKAGED = Database.packaged()
ACTIVE = ROOT / "hwdb" / "calibrations" / "h100-sxm5-80gb" / str(PACKAGED.active("h100-sxm5-80gb"))


class Pem(NamedTuple):
    """Files of a certificate authority, of a server's certificate signed by it, and of a client's."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Those that `serve` started."""
    running: list[Server] = []
    yield running
    for server in running:
        server.stop(0).wait()


@pytest.fixture
def serve(servers: list[Server]) -> Serve:
    """serve(**settings) -> "127.0.0.1:port" of a server that ends with the test."""

    def serve(address: str = "127.0.0.1:0", **settings: object) -> str:
        server, port = start(address, **{"apart": False, **settings})  # a process of its own takes a second to start
        servers.append(server)
        return f"127.0.0.1:{port}"

    return serve


@pytest.fixture
def pem(tmp_path: Path) -> Pem:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1", "localhost"), authority.issue_cert("ci.example.org")
    found = Pem(*(tmp_path / f"{name}.pem" for name in Pem._fields))
    authority.cert_pem.write_to_path(found.ca)
    for made, cert, key in ((server, found.cert, found.key), (client, found.client_cert, found.client_key)):
        cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(key)
    return found


@pytest.fixture
def callers(tmp_path: Path) -> Callers:
    """callers(entry, ...) writes the file of callers, as people do: a new file in place of the old one."""

    def write(*entries: dict[str, object]) -> str:
        path = tmp_path / "callers.toml"
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(map(toml, entries)))
        fresh.replace(path)
        return str(path)

    return write


def toml(entry: dict[str, object]) -> str:
    """token="..." stands for its hash; a name is its token's unless given."""
    given = {"role": "reader", "name": entry.get("token"), **entry}
    if "token" in given:
        given["token_sha256"] = digest(str(given.pop("token")))
    return "[[caller]]\n" + "".join(
        f"{key} = {value}\n" if isinstance(value, date) else f'{key} = "{value}"\n' for key, value in given.items()
    )


@pytest.fixture
def variant(tmp_path: Path) -> Callable[[str], Calibration]:
    """variant(name): the packaged H100 calibration as far as it may be published, with another word in its card,
    so under another id."""

    def variant(name: str) -> Calibration:
        folder = tmp_path / f"variant-{name}"
        shutil.copytree(ACTIVE, folder)
        card = json.loads((folder / "card.json").read_text())
        for noisy in {"collectives", "launch", "transfer"} & set(
            card["families"]
        ):  # admission lets no such spread through
            (folder / "measurements" / f"{noisy}.csv").unlink()
            del card["families"][noisy]
        (folder / "card.json").write_bytes(canonical({**card, "note": name}))
        return identify(folder)

    return variant


@pytest.fixture
def question() -> PredictRequest:
    """Prefill of Llama-3-8B on an H100."""
    workload = Workload(phase=PHASE_PREFILL, batch=1, sequence=2048)
    text = (ROOT / "examples" / "llama-3-8b.json").read_text()
    return PredictRequest(model=Model(config_json=text), workload=workload, gpu="h100-sxm5-80gb")
