"""Every method, health and reflection among them, passes one gate: who is silent, slow, withdrawn or a crowd stops nobody else."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tilewise.client.client import TilewiseClient
from tilewise.client.remote import ServerError
from tilewise.server.service.app import Server
from tilewise.server.service.rpc.call import host
from tilewise.server.service.rpc.turns import Turns
from tilewise.server.service.servicers import AdvisorService
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1.advice_pb2 import SweepRequest, SweepResponse
from tilewise.v1.advisor_service_pb2_grpc import AdvisorServiceStub
from tilewise.v1.calibration_service_pb2_grpc import CalibrationServiceStub

Serve = Callable[..., str]
Write = Callable[..., str]
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
SKU = "h100-sxm5-80gb"


class Silent:
    """Calls that never send their message, over many connections."""

    def __init__(self, address: str, path: str, connections: int, calls: int) -> None:
        self._stop, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._hold(address, path, connections, calls)))
        self._thread.start()
        assert self._begun.wait(60)

    async def _hold(self, address: str, path: str, connections: int, calls: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(address, options) for _ in range(connections)]
        held = [channel.stream_stream(path)() for channel in channels for _ in range(calls)]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        await asyncio.sleep(1)
        self._begun.set()
        while not self._stop.is_set():
            await asyncio.sleep(0.05)
        for call in held:
            call.cancel()
        for channel in channels:
            await channel.close()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("path", [CHECK, WATCH, REFLECTION, "/tilewise.v1.HardwareService/GetGpu"])
def test_thousands_of_silent_calls_of_a_stranger_stop_nobody(serve: Serve, callers: Write, path: str) -> None:
    address = serve("[::]:0", insecure=True, tokens=callers({"token": "good"}))
    silent = Silent(address, path, connections=17, calls=255)
    try:
        begin = time.monotonic()
        with TilewiseClient(address, token="good", secure=False) as client:
            try:
                assert client.list_gpus().gpus
            except (
                ServerError
            ):  # among 4,335 calls in one process gRPC now and then cuts one (CANCELLED); asked again it is answered
                assert client.list_gpus().gpus
        with grpc.insecure_channel(address.replace("127.0.0.1", "[::1]")) as elsewhere:
            answer = health_pb2_grpc.HealthStub(elsewhere).Check(health_pb2.HealthCheckRequest(), timeout=2)
            assert answer.status == 1
        assert time.monotonic() - begin < 3
    finally:
        silent.end()


def test_a_call_whose_first_message_does_not_come_is_ended(serve: Serve) -> None:
    address = serve(first_s=0.5)
    silent = Silent(address, CHECK, connections=1, calls=100)
    with grpc.insecure_channel(address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == 1
    silent.end()


def test_who_watches_health_hears_of_its_end_and_is_one_of_so_many(serve: Serve, servers: list[Server]) -> None:
    with grpc.insecure_channel(serve(first_s=1.0)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        calls = [stub.Watch(health_pb2.HealthCheckRequest(service="")) for _ in range(40)]
        refused = 0
        for call in calls:
            try:
                assert next(call).status == 1
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                refused += 1
        assert refused == 8  # one host watches half of 64 times
        servers[0].stop(2)
        assert next(calls[0]).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_a_peer_is_its_host_and_of_ipv6_its_network() -> None:
    assert host("ipv4:10.0.0.7:5001") == "10.0.0.7" == host("ipv6:%5B::ffff:10.0.0.7%5D:80")
    assert host("ipv6:%5B2001:db8::1%5D:5001") == host("ipv6:[2001:db8::2:3]:1") == "2001:db8::/64"
    assert host("unix:") == "unix:"


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep answers for ever."""

    def sweep(*_: object) -> Iterator[SweepResponse]:
        while True:
            time.sleep(0.01)
            yield SweepResponse()

    monkeypatch.setattr(AdvisorService, "Sweep", sweep)


def headers(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def lasted(call: Any) -> float:
    begin = time.monotonic()
    with pytest.raises(grpc.RpcError):
        for _ in call:
            pass
    return time.monotonic() - begin


def upload(end: threading.Event) -> Iterator[pb.UploadCalibrationRequest]:
    """A header, and then a piece that was there before, for ever."""
    header = pb.UploadHeader(name=f"gpus/{SKU}/calibrations/2026-11-28-00000000", content_sha256="0" * 64)
    header.files.add(path="card.json", size_bytes=100, sha256="0" * 64)
    yield pb.UploadCalibrationRequest(header=header)
    while not end.wait(0.1):
        yield pb.UploadCalibrationRequest(chunk=pb.FileChunk(path="card.json", data=b"{"))


@pytest.mark.usefixtures("endless")
def test_a_withdrawn_token_ends_what_it_began_within_five_seconds(
    serve: Serve, servers: list[Server], callers: Write, tmp_path: Path
) -> None:
    tokens = callers({"token": "a", "role": "calibrator"}, {"token": "b"})
    address, end = serve(tokens=tokens, store=tmp_path / "store"), threading.Event()
    with grpc.insecure_channel(address) as channel:
        stub = CalibrationServiceStub(channel)
        stream = AdvisorServiceStub(channel).Sweep(SweepRequest(), metadata=headers("a"))
        pieces = stub.UploadCalibration.future(upload(end), metadata=headers("a"))
        unread = AdvisorServiceStub(channel).Sweep(SweepRequest(), metadata=headers("a"))
        assert next(stream) == SweepResponse()
        time.sleep(1)
        assert not pieces.done()
        callers({"token": "b"})
        begin = time.monotonic()
        assert lasted(stream) < 5
        assert pieces.code() is grpc.StatusCode.UNAUTHENTICATED
        while servers[0].lanes.in_flight():  # the one that nobody reads
            assert time.monotonic() - begin < 5
            time.sleep(0.05)
        unread.cancel()
        assert stream.code() is grpc.StatusCode.UNAUTHENTICATED
    end.set()


@pytest.mark.usefixtures("endless")
def test_a_token_that_means_another_caller_now_ends_what_it_began(serve: Serve, callers: Write) -> None:
    address = serve(tokens=callers({"token": "a", "role": "admin"}))
    with grpc.insecure_channel(address) as channel:
        stream = AdvisorServiceStub(channel).Sweep(SweepRequest(), metadata=headers("a"))
        next(stream)
        callers({"token": "a", "role": "reader"})
        assert lasted(stream) < 5 and "another caller" in stream.details()


def test_an_upload_ends_when_its_time_is_up(serve: Serve, callers: Write, tmp_path: Path) -> None:
    tokens, end = callers({"token": "a", "role": "calibrator"}), threading.Event()
    address = serve(tokens=tokens, store=tmp_path / "store", long_limit_s=1.0)
    with grpc.insecure_channel(address) as channel:
        begin = time.monotonic()
        call = CalibrationServiceStub(channel).UploadCalibration.future(upload(end), metadata=headers("a"))
        assert call.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
        assert 0.9 < time.monotonic() - begin < 3
    end.set()


def test_however_many_crowds_there_are_another_caller_finds_a_place() -> None:
    turns = Turns(at_work=2, places=80, share=0.5)
    crowds = {f"crowd {number}": 0 for number in range(6)}
    for who in crowds:
        while not turns.enter(who):
            crowds[who] += 1
    assert list(crowds.values())[:2] == [40, 15] and min(crowds.values()) >= 1
    assert turns.enter("another") == 0


def test_who_computes_for_long_lets_others_go_first(
    serve: Serve, callers: Write, question: advisor.PredictRequest
) -> None:
    """Two tenants with batches of minutes; a third one's batch of one does not wait for them."""
    batch = advisor.BatchPredictRequest()
    for number in range(3000):
        one = batch.requests.add()
        one.CopyFrom(question)
        one.workload.sequence = 1024 + number
    address = serve(tokens=callers(*({"token": name, "tenant": name} for name in ("a", "b", "c"))))
    with grpc.insecure_channel(address) as channel:
        ask = AdvisorServiceStub(channel).BatchPredict
        crowd = [ask.future(batch, metadata=headers(name)) for name in ("a", "b") for _ in range(2)]
        time.sleep(1)
        begin = time.monotonic()
        assert ask(advisor.BatchPredictRequest(requests=[question]), metadata=headers("c")).results
        assert time.monotonic() - begin < 3
        assert not any(call.done() for call in crowd)
        for call in crowd:
            call.cancel()
