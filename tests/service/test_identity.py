"""Who may ask what: tokens, certificates, roles, tenants."""

import os
import socket
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from tilewise.client.client import TilewiseClient
from tilewise.client.publish import delete, publications, publish, rollback
from tilewise.client.remote import Remote, ServerError
from tilewise.client.render.calibration import audit_log
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import Forbidden, InvalidInput, NotAvailable, NotFound, Unauthenticated
from tilewise.server.service.app import Server, start
from tilewise.server.service.identity import local
from tilewise.server.service.identity.caller import Caller, Role, authorise
from tilewise.server.service.identity.callers import LOOK_S, Callers
from tilewise.server.service.identity.identify import names
from tilewise.server.service.rpc.methods import methods
from tilewise.server.service.settings import Settings
from tilewise.v1 import calibration_service_pb2 as pb

Serve = Callable[..., str]
Write = Callable[..., str]
Variant = Callable[[str], Calibration]
SKU = "h100-sxm5-80gb"
CALIBRATOR = ("UploadCalibration", "ValidateCalibration", "ListPublications")
ADMIN = ("PublishCalibration", "RollbackCalibration", "DeleteCalibration")


class Pem(NamedTuple):
    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path


def asked(server: str, token: str = "") -> str:
    with TilewiseClient(server, token=token) as client:
        return client.get_gpu(SKU).gpu.sku


def test_without_a_known_token_nobody_is_answered(serve: Serve, callers: Write) -> None:
    server = serve(tokens=callers({"token": "good"}))
    assert asked(server, "good") == SKU
    for token, reason in (("", "NO_TOKEN"), ("bad", "UNKNOWN_TOKEN"), ("good ", "")):
        if not reason:  # blanks around a token are not part of it
            assert asked(server, token) == SKU
            continue
        with pytest.raises(Unauthenticated) as caught:
            asked(server, token)
        assert caught.value.reason == reason


def test_an_expired_token_is_told_so(serve: Serve, callers: Write) -> None:
    today = date.today()
    old = {"token": "old", "expires": today - timedelta(days=2)}
    server = serve(tokens=callers(old, {"token": "new", "expires": today + timedelta(days=2)}))
    assert asked(server, "new") == SKU
    with pytest.raises(Unauthenticated, match="expired"):
        asked(server, "old")


def test_tokens_are_rotated_without_a_restart_and_a_broken_file_changes_nothing(serve: Serve, callers: Write) -> None:
    path = callers({"token": "first"})
    server = serve(tokens=path)
    assert asked(server, "first") == SKU
    callers({"token": "second"})
    time.sleep(LOOK_S + 0.05)
    assert asked(server, "second") == SKU
    with pytest.raises(Unauthenticated):
        asked(server, "first")
    for broken in ("[[caller", "[[caller]]\nrole = 'king'\nname = 'x'\n"):
        Path(path).write_text(broken)
        time.sleep(LOOK_S + 0.05)
        assert asked(server, "second") == SKU
    os.unlink(path)
    time.sleep(LOOK_S + 0.05)
    assert asked(server, "second") == SKU


@pytest.mark.parametrize(
    "text, says",
    [
        ("x", "no TOML"),
        ("[[caller]]\nname = 'a'\nrole = 'king'\ntoken_sha256 = '00'\n", "caller 1: role 'king' must be reader"),
        ("[[caller]]\nname = 'a'\nrole = 'reader'\n", "either token_sha256"),
        ("[[caller]]\nname = 'a'\nrole = 'reader'\ntoken_sha256 = 'secret'\n", "either token_sha256"),
        ("[[caller]]\nname = 'a'\nrole = 'reader'\ntoken = 'secret'\n", "unknown key 'token'"),
        ("[[caller]]\nname = 'a b'\nrole = 'reader'\ncertificate = 'x'\n", "are letters"),
        ("[[caller]]\nname = 'a'\nrole = 'reader'\ncertificate = 'x'\nexpires = 'soon'\n", "must be a date"),
    ],
)
def test_a_file_of_callers_that_makes_no_sense_stops_the_server(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "callers.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"callers\.toml") as caught:
        Callers(path)
    assert says in caught.value.message


def test_every_method_needs_the_role_it_should() -> None:
    for method in methods():
        needed = Role.ADMIN if method.name in ADMIN else Role.CALIBRATOR if method.name in CALIBRATOR else Role.READER
        for role in Role:
            caller = Caller("someone", role)
            if role >= needed:
                authorise(caller, method.title)
            else:
                with pytest.raises(Forbidden, match=f"needs the role {needed.name.lower()}; someone is"):
                    authorise(caller, method.title)
    with pytest.raises(Forbidden, match="needs the role admin"):
        authorise(Caller("someone", Role.CALIBRATOR), "NewService/NewMethod")


def test_a_reader_cannot_call_what_is_a_calibrators(serve: Serve, callers: Write, tmp_path: Path) -> None:
    every = [{"token": role, "role": role} for role in ("reader", "calibrator", "admin")]
    server = serve(tokens=callers(*every), store=tmp_path / "store")
    name = f"gpus/{SKU}/calibrations/none"
    calls = {
        "UploadCalibration": iter([pb.UploadCalibrationRequest()]),
        "ValidateCalibration": pb.ValidateCalibrationRequest(name=name),
        "PublishCalibration": pb.PublishCalibrationRequest(name=name),
        "RollbackCalibration": pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}"),
        "DeleteCalibration": pb.DeleteCalibrationRequest(name=name),
        "ListPublications": pb.ListPublicationsRequest(parent=f"gpus/{SKU}"),
    }
    for token, refused in (("reader", set(calls)), ("calibrator", set(ADMIN)), ("admin", set())):
        remote = Remote(server, token)
        forbidden = set()
        for method, request in calls.items():
            try:
                remote("CalibrationService", method, request)  # type: ignore[arg-type]
            except Forbidden:
                forbidden.add(method)
            except (InvalidInput, NotFound, NotAvailable):
                pass  # it may ask, and what it asked for is not there
        assert forbidden == refused
        remote.close()


def test_one_tenants_calibration_is_seen_by_that_tenant_alone(
    serve: Serve, callers: Write, variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [{"token": tenant, "role": "admin", "tenant": tenant} for tenant in ("red", "blue")]
    server = serve(tokens=callers(*entries), store=tmp_path / "store")
    secret = variant("secret")
    monkeypatch.setenv("TILEWISE_TOKEN", "red")
    assert list(publish(secret, server, promote=True))[-1].endswith("answers now")
    with TilewiseClient(server, token="red") as red, TilewiseClient(server, token="blue") as blue:
        assert red.get_gpu(SKU).gpu.calibration == secret.id
        assert blue.get_gpu(SKU).gpu.calibration != secret.id
        assert secret.id in {found.id for found in red.list_calibrations(SKU).calibrations}
        assert secret.id not in str(blue.list_calibrations(SKU)) + str(blue.list_gpus()) + str(blue.get_gpu(SKU))
        assert red.list_gpus().database_version != blue.list_gpus().database_version
        other = f"{secret.id[:-8]}00000000"
        messages = [refusal(blue, id) for id in (secret.id, other)]
        assert messages[0] == messages[1].replace(other, secret.id)
    remote = Remote(server, "blue")
    log = remote("CalibrationService", "ListPublications", pb.ListPublicationsRequest(parent=f"gpus/{SKU}"))
    assert log == pb.ListPublicationsResponse()
    with pytest.raises(NotFound) as caught:
        remote(
            "CalibrationService",
            "PublishCalibration",
            pb.PublishCalibrationRequest(name=f"gpus/{SKU}/calibrations/{secret.id}"),
        )
    assert "red" not in caught.value.message
    remote.close()


def refusal(client: TilewiseClient, id: str) -> str:
    """What a client is told of a calibration that it cannot see."""
    with pytest.raises(NotFound) as caught:
        client.get_calibration(SKU, id)
    return caught.value.message


def test_the_audit_log_names_who_did_what(
    serve: Serve, callers: Write, variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(tokens=callers({"token": "t", "name": "ann", "role": "admin"}), store=tmp_path / "store")
    monkeypatch.setenv("TILEWISE_TOKEN", "t")
    first, second = variant("1"), variant("2")
    for calibration in (first, second):
        list(publish(calibration, server, promote=True, reason="newer driver"))
    assert rollback(SKU, server, "", "slower") == f"{first.id} answers again for {SKU}, in place of {second.id}"
    log = publications(SKU, server)
    told = [(entry.who, entry.action, entry.id, entry.previous) for entry in log.publications]
    assert told == [
        ("ann", "rollback", first.id, second.id),
        ("ann", "publish", second.id, first.id),
        ("ann", "upload", second.id, ""),
        ("ann", "publish", first.id, ""),
        ("ann", "upload", first.id, ""),
    ]
    assert [entry.reason for entry in log.publications][:2] == ["slower", "newer driver"]
    lines = audit_log(log).splitlines()
    assert len(lines) == 6 and lines[1].endswith("slower") and " ann " in lines[1]
    with pytest.raises(NotAvailable, match="answers; publish another"):
        delete(SKU, first.id, server, "")
    assert delete(SKU, second.id, server, "wrong driver").startswith(f"{second.id} is gone from {SKU}; its files are")
    newest = publications(SKU, server).publications[0]
    assert (newest.who, newest.action, newest.id, newest.reason) == ("ann", "delete", second.id, "wrong driver")


def test_over_tls_the_server_is_checked_and_a_token_is_carried(
    serve: Serve, callers: Write, pem: Pem, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(tokens=callers({"token": "good"}), tls_cert=str(pem.cert), tls_key=str(pem.key))
    with pytest.raises(ServerError):
        asked(server, "good")  # plain text to a TLS port
    monkeypatch.setenv("TILEWISE_CA", str(pem.ca))
    assert asked(server, "good") == SKU
    monkeypatch.setenv("TILEWISE_TOKEN_FILE", str(pem.ca.parent / "token"))
    (pem.ca.parent / "token").write_text("good\n")
    with TilewiseClient(server) as client:
        assert client.get_gpu(SKU).gpu.sku == SKU


def test_with_mtls_a_certificate_is_an_identity_and_none_is_no_connection(
    serve: Serve, callers: Write, pem: Pem, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = {"tls_cert": str(pem.cert), "tls_key": str(pem.key), "tls_client_ca": str(pem.ca)}
    known = callers({"certificate": "ci.example.org", "name": "ci"})
    server, strict = serve(tokens=known, **tls), serve(tokens=callers({"certificate": "other", "name": "o"}), **tls)
    monkeypatch.setenv("TILEWISE_CA", str(pem.ca))
    with pytest.raises(ServerError) as caught:
        asked(server)
    assert caught.value.reason in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    monkeypatch.setenv("TILEWISE_CLIENT_CERT", str(pem.client_cert))
    monkeypatch.setenv("TILEWISE_CLIENT_KEY", str(pem.client_key))
    with pytest.raises(Unauthenticated) as unknown:
        asked(strict)
    assert unknown.value.reason == "UNKNOWN_CERTIFICATE"


def test_a_certificate_in_the_file_of_callers_is_answered(
    serve: Serve, callers: Write, pem: Pem, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = callers({"certificate": "ci.example.org", "name": "ci"})
    server = serve(tokens=known, tls_cert=str(pem.cert), tls_key=str(pem.key), tls_client_ca=str(pem.ca))
    for name, path in (("CA", pem.ca), ("CLIENT_CERT", pem.client_cert), ("CLIENT_KEY", pem.client_key)):
        monkeypatch.setenv(f"TILEWISE_{name}", str(path))
    assert asked(server) == SKU


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"address": "0.0.0.0:0"}, "without TLS"),
        ({"address": "[::]:0"}, "without TLS"),
        ({"tls_cert": "x"}, "go together"),
        ({"tls_client_ca": "x"}, "needs --tls-cert"),
        ({"tls_cert": "/nowhere", "tls_key": "/nowhere"}, "/nowhere: no such file"),
        ({"tokens": "/nowhere"}, "/nowhere: no such file"),
    ],
)
def test_a_server_that_would_not_be_safe_does_not_start(serve: Serve, settings: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        serve(**settings)


def test_strangers_from_elsewhere_may_read_and_no_more(serve: Serve, tmp_path: Path) -> None:
    server = serve("0.0.0.0:0", insecure=True, store=tmp_path / "store")
    assert asked(server) == SKU
    remote = Remote(server, "")
    with pytest.raises(Forbidden, match="anonymous is reader"):
        remote("CalibrationService", "RollbackCalibration", pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}"))
    remote.close()


def test_on_loopback_all_may_read_and_the_servers_user_may_do_everything(
    serve: Serve, servers: list[Server], tmp_path: Path
) -> None:
    server = serve(store=tmp_path / "store")
    port = int(server.rpartition(":")[2])
    asked_for = pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}")
    for token in ("", "wrong"):
        assert asked(server, token) == SKU
        remote = Remote(server, token)
        with pytest.raises(Forbidden, match="anonymous is reader"):
            remote("CalibrationService", "RollbackCalibration", asked_for)
        remote.close()
    remote = Remote(server)  # finds the token by itself
    with pytest.raises(NotAvailable, match="no earlier"):
        remote("CalibrationService", "RollbackCalibration", asked_for)
    remote.close()
    path = local.place(port)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    assert local.known(port) == ""  # another user may have written it
    path.chmod(0o600)
    servers[0].stop(0).wait()
    assert not path.exists()


def test_a_socket_is_its_users_alone_who_may_do_everything(servers: list[Server], tmp_path: Path) -> None:
    path, store = tmp_path / "socket", tmp_path / "store"
    with socket.socket(socket.AF_UNIX) as left:  # by a server that was killed
        left.bind(str(path))
    servers.append(start(f"unix:{path}", store=store)[0])
    assert path.stat().st_mode & 0o777 == 0o600
    remote = Remote(f"unix:{path}")
    with pytest.raises(NotAvailable, match="no earlier"):
        remote("CalibrationService", "RollbackCalibration", pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}"))
    with pytest.raises(InvalidInput, match="a server answers there"):
        start(f"unix:{path}", store=store)
    assert asked(f"unix:{path}") == SKU
    remote.close()


def test_a_socket_has_one_process_and_a_folder() -> None:
    with pytest.raises(InvalidInput, match="one process alone"):
        Settings(address="unix:/x", workers=2)
    with pytest.raises(InvalidInput, match="the folder is not there"):
        start("unix:/no/such/folder/socket")


def test_the_token_of_a_later_server_on_the_port_stays() -> None:
    first, second = local.written(1), local.written(1)
    assert first != second == local.known(1)
    local.forgotten(1, first)
    assert local.known(1) == second
    local.forgotten(1, second)
    assert local.known(1) == ""


@pytest.mark.parametrize(
    "known, found",
    [
        ({"x509_common_name": [b"cn"]}, ["cn"]),
        ({"x509_common_name": [b"cn"], "x509_subject_alternative_name": [b"a.b"], "peer_dns": [b"a.b"]}, ["a.b"]),
        (
            {
                "x509_common_name": [b"cn"],
                "x509_subject_alternative_name": [b"spiffe://ci"],
                "peer_uri": [b"spiffe://ci"],
            },
            [],
        ),
        ({"x509_common_name": [b"cn"], "x509_subject_alternative_name": [b"me@x"], "peer_email": [b"me@x"]}, []),
    ],
)
def test_a_certificate_is_known_by_its_dns_names_and_by_its_common_name_where_it_has_no_other(
    known: dict[str, list[bytes]], found: list[str]
) -> None:
    assert names(known) == found


def test_a_common_name_beside_other_names_counts_for_nothing(
    serve: Serve, callers: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    made, client = (
        authority.issue_cert("127.0.0.1"),
        authority.issue_cert("other.example.org", common_name="ci.example.org"),
    )
    for name, cert in (("server", made), ("client", client)):
        cert.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pem = str(tmp_path / "server.pem")
    known = callers({"certificate": "ci.example.org", "name": "ci"})
    server = serve(tokens=known, tls_cert=pem, tls_key=pem, tls_client_ca=str(tmp_path / "ca.pem"))
    monkeypatch.setenv("TILEWISE_CA", str(tmp_path / "ca.pem"))
    for name in ("TILEWISE_CLIENT_CERT", "TILEWISE_CLIENT_KEY"):
        monkeypatch.setenv(name, str(tmp_path / "client.pem"))
    with pytest.raises(Unauthenticated) as caught:
        asked(server)
    assert caught.value.reason == "UNKNOWN_CERTIFICATE"
