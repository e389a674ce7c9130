"""Long work is done in a process of its own: the same answers and errors, and it ends with its caller and with its server."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tilewise.client.publish import publish
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.server.service.app import Server
from tilewise.server.service.identity.caller import Caller, Role
from tilewise.server.service.rpc.apart import HEAVY_BYTES
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1.advice_pb2 import Axis, Neighbourhood, Range, RecommendRequest, SweepRequest, WeightedWorkload
from tilewise.v1.advisor_service_pb2_grpc import AdvisorServiceStub
from tilewise.v1.check_pb2 import CheckItem, CheckRequest, CheckResponse
from tilewise.v1.workload_pb2 import PHASE_DECODE, Workload

Serve = Callable[..., str]
Write = Callable[..., str]
SKU = "h100-sxm5-80gb"
POLICY = (
    f'[[budget]]\nname = "a"\ngpu = "{SKU}"\nphase = "prefill"\nbatch = 1\nsequence = 512\nmax_regression = "2 %"\n'
)


def asked(question: advisor.PredictRequest) -> dict[str, Any]:
    """Small questions of each sort that is answered apart; "refused": one that is an error."""
    diagnosed, padded, refused = (advisor.PredictRequest.FromString(question.SerializeToString()) for _ in range(3))
    diagnosed.diagnose = True
    padded.model.config_json = question.model.config_json + " " * HEAVY_BYTES
    refused.gpu, refused.model.config_json = "h1000", padded.model.config_json
    model, workload, gpus = question.model, question.workload, [question.gpu]
    mix = [WeightedWorkload(workload=workload)]
    near = Neighbourhood(max_candidate_count=20, max_parameter_change=0.01)
    items = [CheckItem(path="a.json", head=model.config_json, base=model.config_json.replace("14336", "14400"))]
    return {
        "diagnosis": ("Predict", diagnosed),
        "large text": ("Predict", padded),
        "refused": ("Predict", refused),
        "batch": ("BatchPredict", advisor.BatchPredictRequest(requests=[question, refused])),
        "sweep": ("Sweep", SweepRequest(model=model, workload=workload, gpus=gpus, axes=[Axis(field="vocab_size", range=Range(first=1000, last=1200))])),
        "search": ("Recommend", RecommendRequest(model=model, workloads=mix, gpus=gpus, neighbourhood=near)),
        "gate": ("Check", CheckRequest(policy_toml=POLICY, items=items, date="2026-11-28")),
    }  # fmt: skip


def heard(address: str, method: str, request: Any) -> Any:
    """The answers, or the status as the wire has it."""
    kind = getattr(advisor, f"{method}Response", None) or getattr(advice, f"{method}Response", CheckResponse)
    with grpc.insecure_channel(address) as channel:
        try:
            call = channel.unary_stream(f"/tilewise.v1.AdvisorService/{method}")(request.SerializeToString())
            return list(map(kind.FromString, call))
        except grpc.RpcError as error:
            details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
            return error.code(), error.details(), details


def long_sweep(question: advisor.PredictRequest) -> SweepRequest:
    workload = Workload(phase=PHASE_DECODE, batch=1, context=1)
    axes = [Axis(field="context", range=Range(first=1, last=100_000))]
    return SweepRequest(model=question.model, workload=workload, gpus=Database.packaged().skus(), axes=axes)


def process_of(server: Server) -> int:
    assert server.apart is not None
    return server.apart.start().process.pid


def cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_it_answers_as_the_server_itself(serve: Serve, question: advisor.PredictRequest) -> None:
    here, there = serve(apart=False), serve(apart=True)
    for method, request in asked(question).values():
        assert heard(there, method, request) == heard(here, method, request)


def test_its_predictions_are_counted(serve: Serve, servers: list[Server], question: advisor.PredictRequest) -> None:
    address = serve(apart=True)
    counted: list[Any] = []
    servers[0].router.observers.append(lambda call: counted.append((call.code, dict(call.predictions))))
    heard(address, "BatchPredict", advisor.BatchPredictRequest(requests=[question] * 3))
    heard(address, *asked(question)["large text"])
    heard(address, *asked(question)["large text"])
    assert [code for code, _ in counted] == ["OK"] * 3
    assert [sum(found.values()) for _, found in counted] == [3, 1, 1]
    assert {gpu for _, found in counted for gpu, _ in found} == {SKU}


def test_a_second_after_the_deadline_it_computes_nothing(
    serve: Serve, servers: list[Server], question: advisor.PredictRequest
) -> None:
    address = serve(apart=True)
    process = process_of(servers[0])
    heard(address, *asked(question)["sweep"])  # it has started
    with grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            list(AdvisorServiceStub(channel).Sweep(long_sweep(question), timeout=2))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        time.sleep(1)
        before = cpu_s(process)
        time.sleep(0.5)
        assert cpu_s(process) - before < 0.1


def test_a_withdrawn_token_ends_what_it_does_within_five_seconds(
    serve: Serve, callers: Write, question: advisor.PredictRequest
) -> None:
    address = serve(apart=True, tokens=callers({"token": "a"}, {"token": "b"}))
    with grpc.insecure_channel(address) as channel:
        sweep = AdvisorServiceStub(channel).Sweep(long_sweep(question), metadata=[("authorization", "Bearer a")])
        next(sweep)
        callers({"token": "b"})
        begin = time.monotonic()
        with pytest.raises(grpc.RpcError):
            list(sweep)
        assert sweep.code() is grpc.StatusCode.UNAUTHENTICATED
        assert time.monotonic() - begin < 5


def test_one_that_was_killed_is_begun_anew(
    serve: Serve, servers: list[Server], question: advisor.PredictRequest
) -> None:
    address = serve(apart=True)
    method, small = asked(question)["sweep"]
    heard(address, method, small)
    first = process_of(servers[0])
    with grpc.insecure_channel(address) as channel:
        sweep = AdvisorServiceStub(channel).Sweep(long_sweep(question))
        next(sweep)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(grpc.RpcError):
            list(sweep)
        assert sweep.code() is grpc.StatusCode.UNAVAILABLE
    last = time.monotonic() + 20
    while not isinstance(heard(address, method, small), list):  # it may take a moment to die
        assert time.monotonic() < last
    assert process_of(servers[0]) != first


def test_it_sees_a_publication_that_its_server_has_seen(
    serve: Serve, variant: Callable[[str], Calibration], question: advisor.PredictRequest, tmp_path: Path
) -> None:
    address = serve(apart=True, store=tmp_path / "store", poll_s=60.0)
    batch = advisor.BatchPredictRequest(requests=[question])

    def answering() -> str:
        [answer] = heard(address, "BatchPredict", batch)
        [result] = answer.results
        return result.response.gpu.calibration

    before, calibration = answering(), variant("x")
    list(publish(calibration, address, promote=True))
    assert before != calibration.id == answering()


def test_who_asks_for_more_than_all_others_is_answered_apart(
    serve: Serve, servers: list[Server], callers: Write, question: advisor.PredictRequest, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """So that a crowd's questions do not compute beside everybody else's."""
    address = serve(apart=True, cache_mib=0, threads=2, tokens=callers({"token": "crowd"}, {"token": "other"}))
    lane, apart = servers[0].lanes.by_name["short"], servers[0].apart
    assert apart is not None
    taken: list[str] = []
    answers = apart.answers

    def seen(call: Any, caller: Any, *rest: Any) -> Iterator[bytes]:
        taken.append(caller.name)
        return answers(call, caller, *rest)

    monkeypatch.setattr(apart, "answers", seen)
    with lane.place(Caller("other", Role.READER)), grpc.insecure_channel(address) as channel:
        ask = AdvisorServiceStub(channel).Predict
        for token, at_once in (("other", 1), ("crowd", 8)):
            calls = [ask.future(question, metadata=[("authorization", f"Bearer {token}")]) for _ in range(at_once)]
            assert all(call.result().gpu.sku == SKU for call in calls)
    assert set(taken) == {"crowd"}


def test_it_ends_with_its_server(serve: Serve, servers: list[Server], question: advisor.PredictRequest) -> None:
    address = serve(apart=True)
    heard(address, *asked(question)["sweep"])
    process = process_of(servers[0])
    servers[0].stop(0).wait()
    assert not Path(f"/proc/{process}").exists()


def test_what_was_given_up_before_it_began_holds_no_place(
    serve: Serve, servers: list[Server], question: advisor.PredictRequest
) -> None:
    sweep = SweepRequest(
        model=question.model, workload=question.workload, gpus=[question.gpu],
        axes=[Axis(field="vocab_size", range=Range(first=1000, last=200_000))],
    )  # fmt: skip
    with grpc.insecure_channel(serve(apart=True)) as channel:
        stub = AdvisorServiceStub(channel)
        for _ in range(10):
            for call in [stub.Sweep(sweep) for _ in range(8)]:
                call.cancel()
        last = time.monotonic() + 15
        while servers[0].lanes.in_flight():
            assert time.monotonic() < last
            time.sleep(0.05)
