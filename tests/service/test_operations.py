"""What an operator relies on: health, reflection, metrics, log lines, limits, and an end that loses nothing."""

import io
import json
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tilewise.client.client import TilewiseClient
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import Expired, TooLarge
from tilewise.server.deadline import check_alive
from tilewise.server.limits import CANDIDATES_MAX, check_candidates
from tilewise.server.service import logs
from tilewise.server.service.app import Server
from tilewise.server.service.rpc.answers import Answer, Answers
from tilewise.server.service.rpc.call import Call
from tilewise.server.service.servicers import AdvisorService, HardwareService
from tilewise.server.service.tracing import spans
from tilewise.server.service.web import Web
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1.advice_pb2 import Axis, SweepRequest, SweepResponse
from tilewise.v1.advisor_service_pb2_grpc import AdvisorServiceStub
from tilewise.v1.calibration_service_pb2_grpc import CalibrationServiceStub
from tilewise.v1.hardware_service_pb2 import GetGpuRequest, GetGpuResponse

Serve = Callable[..., str]
PREDICT = "/tilewise.v1.AdvisorService/Predict"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """lines() -> what was logged of each call, parsed from its JSON."""
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    handler.setFormatter(logs.Json())
    logs.calls.addHandler(handler)
    logs.calls.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in printed.getvalue().splitlines()]
    logs.calls.removeHandler(handler)
    logs.calls.setLevel(logging.NOTSET)


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last, "it did not come about"
        time.sleep(0.01)


def test_health_says_that_every_service_serves(serve: Serve) -> None:
    with grpc.insecure_channel(serve()) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "tilewise.v1.AdvisorService", "tilewise.v1.CalibrationService"):
            assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_tool_that_knows_nothing_learns_the_contract_by_reflection(serve: Serve) -> None:
    with grpc.insecure_channel(serve()) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
        (answer,) = stub.ServerReflectionInfo(iter(asked))
        names = {service.name for service in answer.list_services_response.service}
    assert {"tilewise.v1.AdvisorService", "tilewise.v1.HardwareService", "tilewise.v1.CalibrationService"} <= names


def test_without_reflection_the_contract_is_not_told(serve: Serve) -> None:
    with grpc.insecure_channel(serve(reflection=False)) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")])))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_each_call_is_one_line_with_the_callers_request_id_and_without_the_question(
    serve: Serve, question: advisor.PredictRequest, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    with grpc.insecure_channel(serve()) as channel:
        predict = AdvisorServiceStub(channel).Predict
        _, call = predict.with_call(question, metadata=[("x-request-id", "mine-1")])
        assert dict(call.trailing_metadata())["x-request-id"] == "mine-1"
        predict(question)
        with pytest.raises(grpc.RpcError) as caught:
            predict(advisor.PredictRequest(gpu="h999"), metadata=[("x-request-id", "no good " * 20)])
        assert len(dict(caught.value.trailing_metadata())["x-request-id"]) == 16
    wait_for(lambda: len(lines()) == 3)
    first, second, third = lines()
    assert (first["method"], first["code"], first["request_id"]) == ("AdvisorService/Predict", "OK", "mine-1")
    assert (first["caller"], first["request_bytes"]) == ("anonymous", question.ByteSize())
    assert "cached" not in first and second["cached"] is True
    assert (third["code"], third["reason"]) == ("NOT_FOUND", "UNKNOWN_GPU")
    assert "h999" not in json.dumps(third) and first["ms"] > 0


def test_a_remembered_answer_is_the_answer_and_is_forgotten_when_the_store_changes(
    serve: Serve, servers: list[Server], question: advisor.PredictRequest, variant: Any, tmp_path: Any
) -> None:
    from tilewise.client.publish import publish

    server = serve(store=tmp_path / "store")
    with TilewiseClient(server) as client, TilewiseClient() as embedded:
        first, again = client.predict(question), client.predict(question)
        assert first == again
        first.database_version = embedded.predict(question).database_version
        assert first == embedded.predict(question)
        calibration = variant("x")
        list(publish(calibration, server, promote=True))
        assert client.predict(question).gpu.calibration == calibration.id


def test_the_memory_for_answers_is_bounded_and_keeps_what_was_asked_for_last() -> None:
    answers = Answers(20_000)
    for number in range(100):
        answers.put(("", 0, bytes([number]) * 100), Answer(b"x" * 500, Counter()))
        assert answers.get(("", 0, b"\0" * 100)) is not None
    assert answers.get(("", 0, bytes([50]) * 100)) is None
    assert answers.get(("", 0, bytes([99]) * 100)) is not None
    assert answers._bytes.total() <= 20_000
    answers.put(("", 0, b"large"), Answer(b"x" * 5000, Counter()))
    assert answers.get(("", 0, b"large")) is None


def test_a_tenant_that_asks_much_crowds_no_other_out_of_the_memory_for_answers() -> None:
    answers = Answers(20_000)
    answers.put(("quiet", 0, b"a"), Answer(b"x" * 500, Counter()))
    for number in range(100):
        answers.put(("loud", 0, bytes([number])), Answer(b"x" * 500, Counter()))
    assert answers.get(("quiet", 0, b"a")) is not None
    assert answers.get(("loud", 0, bytes([0]))) is None and answers.get(("loud", 0, bytes([99]))) is not None


def test_metrics_count_calls_failures_and_predictions(
    serve: Serve, servers: list[Server], question: advisor.PredictRequest
) -> None:
    from prometheus_client import generate_latest

    server = serve(metrics_address="127.0.0.1:0")
    with TilewiseClient(server) as client:
        client.predict(question)
        client.predict(question)
        client.batch_predict([question, advisor.PredictRequest(gpu="h999")])
        with pytest.raises(Exception, match="h999"):
            client.get_gpu("h999")
    metrics, lanes = servers[0].metrics, servers[0].lanes
    assert metrics is not None
    last = time.monotonic() + 5
    while lanes.in_flight() and time.monotonic() < last:
        time.sleep(0.01)  # a call counts until its thread is free again, a moment after its answer
    metrics.sample()
    page = generate_latest(metrics.registry).decode()
    version = Database.packaged().version
    for line in (
        'tilewise_rpc_duration_seconds_count{code="OK",method="AdvisorService/Predict"} 2.0',
        'tilewise_rpc_duration_seconds_count{code="NOT_FOUND",method="HardwareService/GetGpu"} 1.0',
        'tilewise_predictions_total{gpu="h100-sxm5-80gb",trust="published"} 3.0',
        "tilewise_answers_remembered_total 1.0",
        "tilewise_rpc_in_flight 0.0",
        "tilewise_store_up 1.0",
        f'tilewise_database_version{{version="{version}"}} 1.0',
    ):
        assert line in page.splitlines(), page


def test_the_web_page_tells_probes_whether_to_send_calls() -> None:
    ready = [True]
    web = Web("127.0.0.1:0", lambda: b"a_metric 1.0\n", lambda: ready[0])

    def get(path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://{web.address}{path}") as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    assert get("/metrics") == (200, b"a_metric 1.0\n")
    assert get("/livez") == (200, b"alive\n")
    assert get("/readyz") == (200, b"ready\n")
    ready[0] = False
    assert get("/readyz") == (503, b"not ready\n")
    assert get("/etc/passwd")[0] == 404
    web.close()


def test_who_is_slow_to_ask_for_the_page_holds_a_few_places_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.server.service.web.SLOW_S", 4.0)
    web = Web("127.0.0.1:0", lambda: b"", lambda: True)
    address = ("127.0.0.1", int(web.address.rpartition(":")[2]))

    def asks(source: str) -> bytes:
        with socket.create_connection(address, 5, (source, 0)) as own, suppress(ConnectionError):
            own.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            return own.recv(1000)
        return b""

    slow = [socket.create_connection(address) for _ in range(20)]
    for each in slow:
        each.sendall(b"GET /livez HTTP/1.0\r\nX: ")
    wait_for(lambda: not asks("127.0.0.1"))
    assert b"200" in asks("127.0.0.2")

    def dripping() -> bool:
        for each in slow:
            with suppress(OSError):
                each.sendall(b"x")
        return b"200" in asks("127.0.0.1")

    wait_for(dripping)
    for each in slow:
        each.close()
    web.close()


def test_a_call_is_a_span_under_the_callers_own(
    serve: Serve, servers: list[Server], question: advisor.PredictRequest
) -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    server = serve()
    servers[0].router.observers.append(spans(provider))
    with grpc.insecure_channel(server) as channel:
        parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
        AdvisorServiceStub(channel).Predict(question, metadata=[("traceparent", parent)])
    wait_for(lambda: len(kept.get_finished_spans()) == 1)
    (span,) = kept.get_finished_spans()
    assert span.name == "tilewise.v1.AdvisorService/Predict"
    assert span.parent is not None and f"{span.parent.trace_id:032x}" == "ab" * 16
    assert span.attributes is not None and span.attributes["rpc.grpc.status_code"] == "OK"


def test_bytes_that_are_no_message_are_the_callers_fault(serve: Serve) -> None:
    with grpc.insecure_channel(serve()) as channel:
        for path in (PREDICT, "/tilewise.v1.HardwareService/GetGpu"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path)(b"\xff\xff\xff")
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "3 bytes are no tilewise.v1." in caught.value.details()
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/tilewise.v1.AdvisorService/Nothing")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_message_is_never_unpacked(serve: Serve, servers: list[Server], how: grpc.Compression) -> None:
    seen: list[Call] = []
    with grpc.insecure_channel(serve()) as channel:
        servers[0].router.observers.append(seen.append)
        with pytest.raises(grpc.RpcError, match="compressed ones are not read"):
            channel.unary_unary(PREDICT)(bytes(1 << 20), compression=how)
    assert 0 < seen[0].request_bytes < 2000


def test_too_large_a_message_is_refused_with_both_numbers(serve: Serve) -> None:
    with grpc.insecure_channel(serve(message_mib=1)) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(PREDICT)(bytes(2 << 20))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "2097152" in caught.value.details() and "1048576" in caught.value.details()


def test_a_long_name_is_not_sent_back_whole(serve: Serve) -> None:
    with grpc.insecure_channel(serve()) as channel:
        request = GetGpuRequest(name="gpus/" + "h100" * 100_000)
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/tilewise.v1.HardwareService/GetGpu", GetGpuRequest.SerializeToString)(request)
        assert caught.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
        assert len(caught.value.details()) < 2000


def test_too_many_candidates_are_refused_with_their_number() -> None:
    check_candidates(CANDIDATES_MAX)
    with pytest.raises(TooLarge, match="1,000,000,000 candidates; at most 1,000,000"):
        check_candidates(10**9, "ranges")


def test_how_many_candidates_a_request_may_have_is_a_setting(serve: Serve, question: advisor.PredictRequest) -> None:
    axis = Axis(field="vocab_size", values=range(64_000, 64_000 + 11 * 64, 64))
    sweep = SweepRequest(model=question.model, workload=question.workload, gpus=[question.gpu], axes=[axis])
    with TilewiseClient(serve(candidates=10)) as client, pytest.raises(TooLarge, match="11 candidates; at most 10"):
        client.sweep(sweep)
    with TilewiseClient(serve(candidates=11)) as client:
        assert len(client.sweep(sweep).points) == 11


class Gate:
    """Lets the calls of a service wait until they are told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.inside = threading.Event(), 0
        monkeypatch.setattr(HardwareService, "GetGpu", self._get_gpu)
        monkeypatch.setattr(AdvisorService, "Sweep", self._sweep)

    def _get_gpu(self, *_: object) -> GetGpuResponse:
        self.inside += 1
        assert self.open.wait(20)
        return GetGpuResponse()

    def _sweep(self, *_: object) -> Iterator[SweepResponse]:
        """A long piece of work that asks whether anybody waits."""
        self.inside += 1
        yield SweepResponse()
        while not self.open.wait(0.01):
            check_alive()
        yield SweepResponse()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def test_a_full_queue_says_when_to_come_again_and_health_still_answers(serve: Serve, gate: Gate) -> None:
    address = serve(threads=1, queue=2)
    with grpc.insecure_channel(address) as channel:
        get = channel.unary_unary("/tilewise.v1.HardwareService/GetGpu")
        waiting = [get.future(b"", timeout=20) for _ in range(16)]  # one works, 12 may wait for work, 2 for a thread
        wait_for(lambda: sum(call.done() for call in waiting) >= 1)
        refused = next(call for call in waiting if call.done())
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        status = rpc_status.from_call(refused)
        retry = RetryInfo()
        assert any(detail.Unpack(retry) for detail in status.details)
        assert 0 < retry.retry_delay.ToMilliseconds() < 60_000
        assert int(dict(refused.trailing_metadata())["grpc-retry-pushback-ms"]) > 0
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=5).status == 1
        gate.open.set()
        done = [call for call in waiting if call.code() is grpc.StatusCode.OK]
        assert len(done) == 15


def test_our_client_comes_again_when_it_was_told_to(serve: Serve, gate: Gate) -> None:
    address = serve(threads=1, queue=1)
    with grpc.insecure_channel(address) as channel, TilewiseClient(address) as client:
        get = channel.unary_unary("/tilewise.v1.HardwareService/GetGpu")
        waiting = [get.future(b"", timeout=20) for _ in range(20)]
        wait_for(lambda: any(call.done() for call in waiting))
        threading.Timer(0.1, gate.open.set).start()
        assert client.list_gpus().gpus
        assert all(call.code() is not None for call in waiting)


def test_long_work_stops_when_its_caller_hangs_up(
    serve: Serve, gate: Gate, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    with grpc.insecure_channel(serve()) as channel:
        call = AdvisorServiceStub(channel).Sweep(SweepRequest())
        next(call)
        call.cancel()
        wait_for(lambda: len(lines()) == 1)
        assert (lines()[0]["code"], gate.open.is_set()) == ("CANCELLED", False)


def test_long_work_stops_at_the_callers_deadline_and_at_the_servers(
    serve: Serve, gate: Gate, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    with grpc.insecure_channel(serve()) as channel, grpc.insecure_channel(serve(long_limit_s=0.3)) as strict:
        for each, timeout in ((channel, 0.3), (strict, 20)):
            with pytest.raises(grpc.RpcError) as caught:
                list(AdvisorServiceStub(each).Sweep(SweepRequest(), timeout=timeout))
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        wait_for(lambda: len(lines()) == 2)
        assert [line.get("reason") for line in lines()][1] == "EXPIRED"


def test_check_alive_costs_nothing_to_an_embedded_client() -> None:
    check_alive()
    with pytest.raises(Expired):
        raise Expired("x", reason="EXPIRED")


def test_a_caller_that_never_sends_its_request_is_dropped(serve: Serve) -> None:
    """As a slowloris would: the call begins and its message never comes. Others are answered meanwhile."""
    address = serve(stall_s=0.5, threads=1)
    end = threading.Event()

    def never() -> Iterator[pb.UploadCalibrationRequest]:
        end.wait(20)
        yield from ()

    with grpc.insecure_channel(address) as channel:
        slow = [CalibrationServiceStub(channel).UploadCalibration.future(never()) for _ in range(3)]
        slow += [channel.stream_unary(PREDICT).future(never()) for _ in range(3)]
        with TilewiseClient(address) as client:
            assert client.list_gpus().gpus
        begin = time.monotonic()
        for call in slow:
            assert call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.PERMISSION_DENIED)
        assert time.monotonic() - begin < 10
    end.set()


def test_a_reader_that_does_not_read_is_dropped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    def endless(*_: object) -> Iterator[SweepResponse]:
        while True:
            yield SweepResponse(database_version="x" * 1_000_000)

    monkeypatch.setattr(AdvisorService, "Sweep", endless)
    address = serve(stall_s=0.5, threads=1)
    options = [("grpc.max_receive_message_length", 64 << 20)]
    with grpc.insecure_channel(address, options) as channel, TilewiseClient(address) as client:
        calls = [AdvisorServiceStub(channel).Sweep(SweepRequest()) for _ in range(4)]  # nobody iterates
        assert client.list_gpus().gpus
        wait_for(lambda: sum(line.get("reason") == "STALLED" for line in lines()) == 4)
        for call in calls:
            call.cancel()


def test_what_is_in_flight_is_finished_before_the_server_ends(serve: Serve, servers: list[Server], gate: Gate) -> None:
    with grpc.insecure_channel(serve()) as channel:
        get = channel.unary_unary("/tilewise.v1.HardwareService/GetGpu")
        call = get.future(b"")
        wait_for(lambda: gate.inside == 1)
        ended = servers[0].stop(10)
        assert not servers[0].ready and not ended.wait(0.2)
        with pytest.raises(grpc.RpcError) as caught:
            get(b"", timeout=2)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        gate.open.set()
        assert call.code() is grpc.StatusCode.OK
        assert ended.wait(5)


def test_a_bug_becomes_internal_with_a_request_id_and_no_detail(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the secret path /etc/x")

    monkeypatch.setattr(HardwareService, "GetGpu", broken)
    with grpc.insecure_channel(serve()) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/tilewise.v1.HardwareService/GetGpu")(b"", metadata=[("x-request-id", "r-1")])
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert "r-1" in caught.value.details() and "secret" not in caught.value.details()


def test_many_callers_at_once_get_each_their_own_answer(serve: Serve, question: advisor.PredictRequest) -> None:
    def ask(client: TilewiseClient, size: int) -> advisor.PredictResponse:
        mine = advisor.PredictRequest()
        mine.CopyFrom(question)
        mine.model.overrides["vocab_size"] = size
        return client.predict(mine)

    sizes = [32_000 + 64 * (number % 10) for number in range(100)]
    with TilewiseClient(serve()) as client, TilewiseClient() as embedded, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(partial(ask, client), sizes))
        alone = {size: ask(embedded, size) for size in set(sizes)}
    assert answers == [alone[size] for size in sizes]
