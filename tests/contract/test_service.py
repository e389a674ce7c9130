"""The services as a client of the contract meets them, embedded and over gRPC."""

import ast
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import grpc
import pytest
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from tilewise.client.cli.explain import entries
from tilewise.client.client import TilewiseClient
from tilewise.client.remote import Remote
from tilewise.hwdb import errors
from tilewise.hwdb.errors import InvalidInput, NotFound, TilewiseError, TooLarge, Unimplemented
from tilewise.server.messages.status import CODES, from_status, to_status
from tilewise.server.service.app import start
from tilewise.server.service.resources import page, resource
from tilewise.server.service.servicers import CalibrationService, services
from tilewise.v1 import (
    advice_pb2,
    advisor_service_pb2_grpc,
    calibration_service_pb2,
    check_pb2,
)
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import hardware_service_pb2 as hardware
from tilewise.v1 import workload_pb2 as work

ROOT = Path(__file__).resolve().parents[2]
LLAMA = (ROOT / "examples" / "llama-3-8b.json").read_text()
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TilewiseError)]


def asked(**sizes: int) -> advisor.PredictRequest:
    """A question about the example on an H100 with some sizes replaced."""
    workload = work.Workload(phase=work.PHASE_PREFILL, batch=1, sequence=2048)
    return advisor.PredictRequest(
        model={"config_json": LLAMA, "overrides": sizes}, workload=workload, gpu="h100-sxm5-80gb"
    )


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    server, port = start("127.0.0.1:0")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_comes_back_from_it(kind: type[TilewiseError]) -> None:
    error = kind("what; allowed; nearest", reason="SOME_REASON", field="workload.batch", gpu="x", count=3)
    status = to_status(error)
    assert status.code == CODES[kind] != 0
    back = from_status(status)
    assert type(back) is kind
    assert vars(back) == vars(error)


def test_the_same_error_has_the_same_bytes_in_whatever_order_its_facts_come() -> None:
    orders = [InvalidInput("what", reason="R", **{name: name for name in names}) for names in permutations("abcdef")]
    assert len({to_status(error).SerializeToString() for error in orders}) == 1


def test_every_reason_of_the_code_is_explained() -> None:
    files = [path for room in ("hwdb", "server", "client", "calibration") for path in (ROOT / room).rglob("*.py")]
    unknown = {reason for path in files for reason in reasons(path)} - set(entries())
    assert unknown == set()


def reasons(path: Path) -> Iterator[str]:
    """Every literal `reason="..."` of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "reason" and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def test_a_stream_ends_with_the_whole_advice_and_before_it_come_only_news(channel: grpc.Channel) -> None:
    workload = work.Workload(phase=work.PHASE_TRAIN, batch=1, sequence=2048, mode=work.MODE_COMPILED)
    request = advice.RecommendRequest(
        model={"config_json": LLAMA}, workloads=[advice.WeightedWorkload(workload=workload)], gpus=["h100-sxm5-80gb"]
    )
    *news, last = advisor_service_pb2_grpc.AdvisorServiceStub(channel).Recommend(request)
    assert news and all(part.HasField("progress") and not part.baseline for part in news)
    assert last.baseline and last.summary and last.database_version and not last.HasField("progress")


def test_a_search_that_is_too_long_for_its_deadline_is_given_up(channel: grpc.Channel) -> None:
    axis = advice.Axis(field="intermediate_size", range=advice.Range(first=8192, last=400_000))
    workload = work.Workload(phase=work.PHASE_TRAIN, batch=1, sequence=2048)
    request = advice.SweepRequest(model={"config_json": LLAMA}, workload=workload, gpus=["h100-sxm5-80gb"], axes=[axis])
    begin = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        list(advisor_service_pb2_grpc.AdvisorServiceStub(channel).Sweep(request, timeout=1.0))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - begin < 10


def test_an_error_over_grpc_names_reason_and_field(channel: grpc.Channel) -> None:
    request = asked()
    request.workload.tensor_parallel = 7
    with pytest.raises(grpc.RpcError) as caught:
        advisor_service_pb2_grpc.AdvisorServiceStub(channel).Predict(request)
    status = rpc_status.from_call(caught.value)
    info, bad = ErrorInfo(), BadRequest()
    assert status.code == Code.INVALID_ARGUMENT
    assert status.details[0].Unpack(info) and status.details[1].Unpack(bad)
    assert info.domain == "tilewise" and info.reason
    assert bad.field_violations[0].field.endswith("tensor_parallel")


@pytest.mark.parametrize("method", ["Sweep", "Recommend", "Check"])
def test_an_empty_question_is_refused_with_what_it_lacks(method: str, channel: grpc.Channel) -> None:
    stub = advisor_service_pb2_grpc.AdvisorServiceStub(channel)
    request = getattr(check_pb2 if method == "Check" else advice_pb2, f"{method}Request")
    with pytest.raises(grpc.RpcError) as caught:
        answer = getattr(stub, method)(request())
        next(iter(answer))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_another_client_of_the_contract_gets_the_gate_s_own_answer(channel: grpc.Channel) -> None:
    policy = (ROOT / "examples" / "gate" / "tilewise.toml").read_text()
    item = check_pb2.CheckItem(path="configs/a.json", head=LLAMA.replace("14336", "16384"), base=LLAMA)
    request = check_pb2.CheckRequest(policy_toml=policy, items=[item], date="2026-11-28")
    answer = advisor_service_pb2_grpc.AdvisorServiceStub(channel).Check(request)
    with TilewiseClient() as client:
        assert answer == client.check(request)
    assert answer.verdict == check_pb2.VERDICT_FAIL


def test_an_upload_is_part_of_the_contract_and_not_answered_yet() -> None:
    server, port = start("127.0.0.1:0")
    remote = Remote(f"127.0.0.1:{port}")
    with pytest.raises(Unimplemented):
        remote("CalibrationService", "UploadCalibration", iter([calibration_service_pb2.UploadCalibrationRequest()]))  # type: ignore[arg-type]
    remote.close()
    server.stop(0).wait()
    for method in ("ValidateCalibration", "PublishCalibration", "RollbackCalibration", "DeleteCalibration"):
        with pytest.raises(Unimplemented):
            getattr(CalibrationService(), method)(None)


def test_a_batch_answers_as_single_calls_do_in_the_order_of_the_requests() -> None:
    requests = [
        asked(),
        asked(hidden_size=3072, head_dim=96),
        asked(hidden_size=5120, head_dim=160),
        asked(vocab_size=50257),
    ]
    requests += [
        asked(num_attention_heads=30),
        asked(hidden_size=8192, head_dim=256),
        asked(hidden_size=-1, head_dim=128),
    ]
    requests[5].gpu = "mi300x"
    with TilewiseClient() as client:
        results = client.batch_predict(requests).results
        for request, result in zip(requests, results, strict=True):
            try:
                assert result.response == client.predict(request)
            except TilewiseError as error:
                assert result.error == to_status(error)
    assert [result.WhichOneof("outcome") for result in results] == [*["response"] * 4, "error", "response", "error"]


def test_a_batch_has_a_limit() -> None:
    with TilewiseClient() as client, pytest.raises(TooLarge, match="10001 requests"):
        client.batch_predict([advisor.PredictRequest()] * 10_001)


def test_what_is_required_is_asked_for() -> None:
    with TilewiseClient() as client:
        for request, field in (
            (advisor.PredictRequest(), "gpu"),
            (advisor.PredictRequest(gpu="mi300x", workload=asked().workload), "model"),
            (advisor.PredictRequest(gpu="mi300x", model={"config_json": LLAMA}), "workload.phase"),
        ):
            with pytest.raises(InvalidInput) as caught:
                client.predict(request)
            assert caught.value.field == field


def test_an_enum_number_of_a_newer_contract_is_refused() -> None:
    request = asked()
    request.workload.mode = 99  # type: ignore[assignment]
    with TilewiseClient() as client, pytest.raises(InvalidInput, match="mode 99"):
        client.predict(request)


def test_a_resource_name_is_read_or_refused() -> None:
    assert resource("gpus/mi300x", "gpus/") == ["mi300x"]
    assert resource("gpus/mi300x/calibrations/a", "gpus/", "/calibrations/") == ["mi300x", "a"]
    for name in ("", "mi300x", "gpus/", "x/gpus/mi300x", "gpus/mi300x/calibrations/"):
        with pytest.raises(InvalidInput, match=r"must have the form gpus/\.\.\."):
            resource(name, "gpus/") if "/c" not in name else resource(name, "gpus/", "/calibrations/")


def test_pages_hold_every_item_once() -> None:
    pages, token = [], ""
    while token or not pages:
        items, token = page(range(7), 3, token)
        pages.append(list(items))
    assert pages == [[0, 1, 2], [3, 4, 5], [6]]
    assert page(range(2000), 5000, "")[0] == range(1000)
    for size, bad_token in ((-1, ""), (1, "x")):
        with pytest.raises(InvalidInput):
            page(range(7), size, bad_token)


def test_a_gpu_that_is_not_known_is_not_found() -> None:
    with TilewiseClient() as client, pytest.raises(NotFound):
        client.get_gpu("h999")


def test_every_page_of_gpus_is_collected() -> None:
    whole = services()["HardwareService"]
    assert isinstance(whole, object)
    with TilewiseClient() as client:
        skus = [gpu.sku for gpu in client.list_gpus().gpus]
    assert skus == sorted(skus) and len(skus) >= 18
    assert hardware.ListGpusRequest().page_size == 0


def test_an_address_that_others_reach_needs_a_word() -> None:
    with pytest.raises(InvalidInput, match="--insecure"):
        start("0.0.0.0:0")
    server, _ = start("0.0.0.0:0", insecure=True)
    server.stop(None).wait()
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        start("nowhere")


def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    server, port = start("127.0.0.1:0")
    with pytest.raises(InvalidInput, match=f"cannot listen on 127.0.0.1:{port}: the port is taken"):
        start(f"127.0.0.1:{port}")
    server.stop(None).wait()
