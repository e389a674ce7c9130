"""Several teams share one server: none of them can use it up, and none waits for another's crowd."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_status import rpc_status

from tilewise.client.client import TilewiseClient
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.service.app import Server
from tilewise.server.service.identity.caller import Caller, Role
from tilewise.server.service.rpc.turns import Turns
from tilewise.server.service.servicers import AdvisorService, HardwareService
from tilewise.server.service.settings import Settings
from tilewise.v1.advice_pb2 import SweepResponse
from tilewise.v1.hardware_service_pb2 import GetGpuResponse

Serve = Callable[..., str]
Write = Callable[..., str]
PLACES = 20  # threads=1, queue=7 and the server's reserve of 12
HALF: dict[str, Any] = {"threads": 1, "queue": 7, "caller_share": 0.5}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """GetGpu waits for this event."""
    event = threading.Event()

    def get_gpu(*_: object) -> GetGpuResponse:
        assert event.wait(20)
        return GetGpuResponse()

    monkeypatch.setattr(HardwareService, "GetGpu", get_gpu)
    yield event
    event.set()


def begun(channel: grpc.Channel, token: str, calls: int) -> list[Any]:
    get = channel.unary_unary("/tilewise.v1.HardwareService/GetGpu")
    return [get.future(b"", metadata=[("authorization", f"Bearer {token}")], timeout=20) for _ in range(calls)]


def told(call: Any) -> tuple[str, float]:
    """Reason and seconds to wait of a refused call."""
    info, retry = ErrorInfo(), RetryInfo()
    for detail in rpc_status.from_call(call).details:
        detail.Unpack(info)
        detail.Unpack(retry)
    assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and info.metadata["limit"] == str(PLACES // 2)
    return info.reason, retry.retry_delay.ToMilliseconds() / 1e3


def test_one_caller_holds_its_share_and_another_is_taken_in_meanwhile(
    serve: Serve, servers: list[Server], callers: Write, opened: threading.Event
) -> None:
    address = serve(tokens=callers({"token": "a"}, {"token": "b"}), metrics_address="127.0.0.1:0", **HALF)
    with grpc.insecure_channel(address) as channel:
        crowd = begun(channel, "a", PLACES - 2)
        surplus = PLACES - 2 - PLACES // 2
        while sum(call.done() for call in crowd) < surplus:
            assert not opened.wait(0.01)
        refused = [told(call) for call in crowd if call.done()]
        assert [reason for reason, _ in refused] == ["OVER_QUOTA"] * surplus
        assert all(0 < wait_s < 60 for _, wait_s in refused)
        other = begun(channel, "b", 2)
        opened.set()
        assert all(call.code() is grpc.StatusCode.OK for call in other)
        assert sum(call.code() is grpc.StatusCode.OK for call in crowd) == PLACES // 2
    metrics = servers[0].metrics
    assert metrics is not None
    labels = {"method": "HardwareService/GetGpu", "reason": "OVER_QUOTA"}
    assert metrics.registry.get_sample_value("tilewise_rpc_refused_total", labels) == surplus


def test_callers_of_one_tenant_have_one_share_together(serve: Serve, callers: Write, opened: threading.Event) -> None:
    tenants = [{"token": token, "tenant": "red"} for token in ("a", "b")]
    address = serve(tokens=callers(*tenants), **HALF)
    with grpc.insecure_channel(address) as channel:
        crowd = begun(channel, "a", PLACES // 2 - 1) + begun(channel, "b", 3)
        while sum(call.done() for call in crowd) < 2:
            assert not opened.wait(0.01)
        opened.set()
        assert sum(call.code() is grpc.StatusCode.OK for call in crowd) == PLACES // 2


def test_without_a_file_of_callers_whoever_comes_has_the_whole(serve: Serve, opened: threading.Event) -> None:
    address = serve(**HALF)
    with grpc.insecure_channel(address) as channel:
        crowd = begun(channel, "", PLACES)
        opened.set()
        assert all(call.code() is grpc.StatusCode.OK for call in crowd)


def test_our_client_waits_and_asks_again_where_its_share_is_used(
    serve: Serve, callers: Write, opened: threading.Event
) -> None:
    address = serve(tokens=callers({"token": "a"}), **HALF)
    with grpc.insecure_channel(address) as channel, TilewiseClient(address, token="a") as client:
        begun(channel, "a", PLACES // 2)
        threading.Timer(0.1, opened.set).start()
        assert client.list_gpus().gpus


def test_the_next_turn_goes_to_whoever_has_the_fewest_at_work() -> None:
    turns, order = Turns(at_work=2, places=9, share=1.0), list[str]()

    def compute(who: str) -> None:
        with turns.turn(who):
            order.append(who)

    with turns.turn("crowd"):
        with turns.turn("crowd"):
            waiting = []
            for who in ("crowd", "crowd", "other"):
                waiting.append(threading.Thread(target=compute, args=(who,)))
                waiting[-1].start()
                while len(turns._waiting) < len(waiting):
                    pass
        for thread in waiting:
            thread.join(10)
    assert order[0] == "other" and sorted(order) == ["crowd", "crowd", "other"]


def test_one_caller_never_has_all_turns() -> None:
    turns = Turns(at_work=2, places=9, share=0.5)
    with turns.turn("crowd"):
        second = threading.Thread(target=lambda: turns.turn("crowd").__enter__())
        second.start()
        second.join(0.05)
        assert second.is_alive()
        with turns.turn("other"):
            pass
    second.join(10)
    assert not second.is_alive()


def test_a_place_that_was_left_can_be_taken_again() -> None:
    turns = Turns(at_work=1, places=4, share=0.5)
    assert [turns.enter("a") for _ in range(3)] == [0, 0, 2]
    assert turns.enter("b") == 0
    turns.leave("a")
    assert (turns.enter("a"), turns.enter("a")) == (0, 2)


def test_a_share_is_shared_by_a_tenant_and_otherwise_ones_own() -> None:
    assert Caller("x", Role.READER).group != Caller("y", Role.READER).group
    assert (
        Caller("x", Role.READER, "red").group
        == Caller("y", Role.ADMIN, "red").group
        != Caller("red", Role.READER).group
    )


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_is_a_part_of_the_whole(share: float) -> None:
    with pytest.raises(InvalidInput, match="caller_share"):
        Settings(caller_share=share)


def test_a_stream_that_its_caller_cancels_gives_its_place_back(
    serve: Serve, servers: list[Server], callers: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep(*_: object) -> Iterator[SweepResponse]:
        while True:
            yield SweepResponse()
            time.sleep(0.01)

    monkeypatch.setattr(AdvisorService, "Sweep", sweep)
    with grpc.insecure_channel(serve(tokens=callers({"token": "a"}), **HALF)) as channel:
        ask = channel.unary_stream("/tilewise.v1.AdvisorService/Sweep")
        for _ in range(PLACES):  # more than one caller may hold at a time
            call = ask(b"", metadata=[("authorization", "Bearer a")], timeout=20)
            next(call)
            call.cancel()
            end = time.monotonic() + 10
            while servers[0].lanes.in_flight() and time.monotonic() < end:
                time.sleep(0.01)


def test_who_gave_way_goes_on_where_the_other_waits_for_what_it_holds() -> None:
    turns, held, ended = Turns(1, 10, 1.0), threading.Lock(), threading.Event()

    def other() -> None:
        with turns.turn("b"), held:
            ended.set()

    with turns.turn("a"):
        with held:
            threading.Thread(target=other, daemon=True).start()
            while not turns._waiting:
                time.sleep(0.01)
            turns.give_way("a")
        assert ended.wait(5)
