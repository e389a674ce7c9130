"""Strings and numbers that are none are refused where they enter, and harmless where they leave."""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import update

from tilewise.client.cli import main
from tilewise.client.client import TilewiseClient
from tilewise.client.publish import publish
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import InvalidInput, NotFound
from tilewise.hwdb.store import tables
from tilewise.hwdb.store.engine import open_engine
from tilewise.server.gate.policy import read as read_policy
from tilewise.server.messages.status import from_status, to_status
from tilewise.server.service import logs
from tilewise.server.service.app import Server
from tilewise.server.service.identity import local
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1.advice_pb2 import RecommendRequest, WeightedWorkload
from tilewise.v1.calibration_service_pb2_grpc import CalibrationServiceStub
from tilewise.v1.check_pb2 import CheckItem, CheckRequest

Serve = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]
SKU = "h100-sxm5-80gb"
CONTROLS = ("\0", "\x1b[31m", "\n::error::x", "\r", "\x9b", "\u202e")


def test_half_a_surrogate_is_the_callers_fault_and_spares_the_rest_of_a_batch(
    serve: Serve, question: advisor.PredictRequest
) -> None:
    bad = advisor.PredictRequest()
    bad.CopyFrom(question)
    for text in (
        '{"model_type": "\\ud800"}',
        '{"model_type": "llama", "\\udfff": 1}',
    ):
        bad.model.config_json = text
        with TilewiseClient(serve()) as client:
            with pytest.raises(InvalidInput) as caught:
                client.predict(bad)
            assert caught.value.reason == "UNREADABLE_CONFIG"
            first, second = client.batch_predict([bad, question]).results
        assert first.HasField("error") and second.HasField("response")


@pytest.mark.parametrize("text", CONTROLS)
def test_no_name_of_a_request_holds_what_is_not_printed(
    serve: Serve, question: advisor.PredictRequest, text: str
) -> None:
    question.model.name = f"a{text}"
    with TilewiseClient(serve()) as client:
        with pytest.raises(InvalidInput) as caught:
            client.predict(question)
        assert (caught.value.reason, caught.value.field) == ("BAD_TEXT", "model.name")
        question.model.name = ""
        question.model.overrides[text] = 1
        with pytest.raises(InvalidInput, match=r"model\.overrides"):
            client.batch_predict([question])
        with pytest.raises(InvalidInput):
            client.get_gpu(text)


def test_a_name_as_long_as_a_book_is_refused_before_anything_looks_for_its_neighbours(serve: Serve) -> None:
    with (
        TilewiseClient(serve()) as client,
        pytest.raises(InvalidInput, match="name has 1,900,005 characters; at most 4,096"),
    ):
        client.get_gpu("a" * 1_900_000)


def test_a_number_that_is_none_is_refused(serve: Serve, question: advisor.PredictRequest) -> None:
    mix = [WeightedWorkload(workload=question.workload, weight=float("nan"))]
    with TilewiseClient(serve()) as client, pytest.raises(InvalidInput, match="weight is no finite number"):
        client.recommend(RecommendRequest(model=question.model, gpus=[SKU], workloads=mix))


@pytest.mark.parametrize("text", CONTROLS)
def test_a_status_is_one_line_whatever_it_quotes(text: str) -> None:
    status = to_status(InvalidInput(f"{text} is bad\ud800", reason="X", field=text, what=text))
    assert status.message.isprintable() and status.message.isascii()
    error = from_status(status)
    assert error is not None and error.field.isprintable() and error.metadata["what"].isprintable()


@pytest.mark.parametrize("form", [logs.Json, logs.Text])
def test_a_log_line_is_one_line_whatever_it_quotes(form: type[logging.Formatter]) -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "call", (), None)
    record.line = {"reason": "a\n\x1b\ud800"}
    line = form().format(record)
    assert line.isascii() and line.isprintable()


def test_a_reason_with_a_nul_is_refused_before_a_database_sees_it(serve: Serve, where: str) -> None:
    address = serve(store=where)
    with grpc.insecure_channel(address) as channel:
        stub = CalibrationServiceStub(channel)
        request = pb.PublishCalibrationRequest(name=f"gpus/{SKU}/calibrations/x", reason="a\0b")
        with pytest.raises(grpc.RpcError) as caught:
            stub.PublishCalibration(request, metadata=signed(address))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "card",
    [
        {"note": "half \ud800"},
        {"note": float("nan")},
        {"note": "\x1b]0;x\x07"},
        {"families": {"../../../../etc/passwd": {"key": ["m"]}}},
        {"families": {"../../" + "a" * 16 + "/measurements/gemm": {"key": ["m"]}}},
        {"families": ["gemm"]},
        {"families": {"GEMM": {"key": ["m"]}}},
    ],
)
def test_a_card_that_no_list_can_show_or_that_names_paths_is_not_taken_in(
    serve: Serve, variant: Callable[[str], Calibration], tmp_path: Path, card: dict[str, Any]
) -> None:
    address, folder = serve(store=tmp_path / "store"), variant("x").folder
    whole = {**json.loads((folder / "card.json").read_text()), **card}
    with pytest.raises(grpc.RpcError) as caught:
        sent(address, whole, {"models/launch.json": b"{}"})
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "card.json" in caught.value.details() and caught.value.details().isprintable()
    with TilewiseClient(address) as client:
        assert SKU in str(client.list_calibrations(SKU))


def signed(address: str) -> list[tuple[str, str]]:
    """What the server's own user brings along."""
    return [("authorization", f"Bearer {local.known(int(address.rpartition(':')[2]))}")]


def sent(address: str, card: dict[str, Any], files: dict[str, bytes]) -> None:
    """Upload whatever it is, under its right hash."""

    def text(content: dict[str, Any]) -> bytes:
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()

    bare = {key: value for key, value in card.items() if key not in ("id", "content_sha256")}
    digest = hashlib.sha256()
    for name, content in sorted({**files, "card.json": text(bare)}.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    sha256 = digest.hexdigest()
    id = f"2026-11-28-{sha256[:8]}"
    files = {**files, "card.json": text({**bare, "id": id, "content_sha256": sha256})}
    header = pb.UploadHeader(name=f"gpus/{SKU}/calibrations/{id}", content_sha256=sha256)
    for name, content in files.items():
        header.files.add(path=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    messages = [pb.UploadCalibrationRequest(header=header)]
    messages += [
        pb.UploadCalibrationRequest(chunk=pb.FileChunk(path=name, data=content)) for name, content in files.items()
    ]
    with grpc.insecure_channel(address) as channel:
        CalibrationServiceStub(channel).UploadCalibration(iter(messages), metadata=signed(address))


def test_a_good_card_is_taken_in_by_the_same_way(
    serve: Serve, variant: Callable[[str], Calibration], tmp_path: Path
) -> None:
    address, card = serve(store=tmp_path / "store"), json.loads((variant("x").folder / "card.json").read_text())
    sent(address, {**card, "note": "ü \U0001f600"}, {"models/launch.json": b"{}"})


def test_a_bad_card_that_an_older_server_took_in_hides_no_other(
    serve: Serve, servers: list[Server], variant: Callable[[str], Calibration], tmp_path: Path
) -> None:
    address = serve(store=tmp_path / "store")
    good, bad = variant("good"), variant("bad")
    for each in (good, bad):
        list(publish(each, address, promote=False))
    engine = open_engine(str(tmp_path / "store"))
    table = tables.calibration_file
    with engine.begin() as connection:
        content = (bad.folder / "card.json").read_bytes().replace(b'"bad"', b"NaN")
        connection.execute(
            update(table).where(table.c.id == bad.id, table.c.path == "card.json").values(content=content)
        )
    engine.dispose()
    servers[0].stop(0).wait()
    with TilewiseClient(serve(store=tmp_path / "store")) as client:
        ids = [each.id for each in client.list_calibrations(SKU).calibrations]
        assert good.id in ids and bad.id not in ids


def test_no_family_of_a_card_is_a_path(variant: Callable[[str], Calibration], tmp_path: Path) -> None:
    calibration = variant("x")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(NotFound):
        calibration.measurements("../../secret")
    calibration.card["families"] = {"../../secret": {"key": ["a"]}}
    with pytest.raises(InvalidInput, match="families must be"):
        calibration.families()


def test_what_a_policy_or_a_path_says_is_one_line_of_a_terminal_and_no_annotation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    policy = (ROOT / "examples" / "gate" / "tilewise.toml").read_text()
    for text in (r"\u001b[2J", r"\n::error::owned", r"\u009b"):
        hostile = f'{policy}\n[[check.budget]]\nconfig = "*"\nlimit = "1 s"\nmessage = "{text}"\n'
        with pytest.raises(InvalidInput, match="not printed") as caught:
            read_policy(hostile)
        assert caught.value.message.isprintable()
    with TilewiseClient() as client, pytest.raises(InvalidInput, match=r"items\.path"):
        client.check(CheckRequest(policy_toml=policy, items=[CheckItem(path="a\n::error::b.json", head="{}")]))
    (tmp_path / "x.json").write_text(json.dumps({"model_type": "\x1b[31m\n::error::x"}))
    with pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "x.json"), "--gpu", SKU, "--phase", "prefill", "--seq", "128"])
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed and not any(line.startswith("::") for line in printed.splitlines())
