"""What a request may cost: little before it is known to be fair, and nothing once nobody waits for it."""

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import grpc
import pytest

import tilewise.hwdb
import tilewise.server
from tilewise.client.access import access
from tilewise.client.publish import publish
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.confined import MEMORY_BYTES, confined
from tilewise.hwdb.errors import Expired, TilewiseError, TooLarge
from tilewise.hwdb.texts import DEPTH_MAX, read_json, read_toml
from tilewise.server.architecture import families, read, stated
from tilewise.server.architecture.stated import check_stated
from tilewise.server.gate.policy import read as read_policy
from tilewise.server.service.app import Server
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1.advice_pb2 import Axis, Neighbourhood, Range, RecommendRequest, SweepRequest, WeightedWorkload
from tilewise.v1.advisor_service_pb2_grpc import AdvisorServiceStub
from tilewise.v1.calibration_service_pb2_grpc import CalibrationServiceStub
from tilewise.v1.check_pb2 import CheckItem, CheckRequest
from tilewise.v1.workload_pb2 import MODE_COMPILED, PHASE_DECODE, PHASE_TRAIN, Workload

ROOT = Path(__file__).resolve().parents[2]
Serve = Callable[..., str]
SKU = "h100-sxm5-80gb"
DOTTED = ".".join(["a"] * 20_000)
BOMBS = {
    "a dotted key": f"[model]\n{DOTTED} = 1\n",
    "a dotted table": f"[{DOTTED}]\n",
    "a dotted key in a table within an array": f'[model]\na = ["""x"""", {{{DOTTED} = 1}}, """y""""]\n',
    "quoted parts": "[model]\n" + ".".join(['"a"'] * 20_000) + " = 1\n",
    "blanks between the parts": "[model]\n" + " . ".join(["a"] * 20_000) + " = 1\n",
    "nested arrays": "[model]\na = " + "[" * 100_000 + "]" * 100_000,
    "many values": "[model]\na = [" + "[]," * 300_000 + "]",
    "empty lines": "\n" * 900_000 + "=",
    "one long word": "a" * 900_000,
    "many short tables": "".join(f"[a{number}]\n" for number in range(120_000)),
    "a number that cannot be written": "[model]\nhidden_size = 0x" + "f" * 100_000,
    "many lines": "[model]\n" + "".join(f"a{number} = 1\n" for number in range(20_000)),
    "nested objects": '{"model_type": "llama", "a": ' + '{"a":' * 100_000 + "1" + "}" * 100_001,
    "many lists": '{"model_type": "llama", "a": [' + "[]," * 300_000 + "[]]}",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("reader", [read, read_policy])
def test_a_text_that_would_cost_much_is_refused_at_once(name: str, reader: Callable[[str], object]) -> None:
    begin = time.process_time()
    with pytest.raises(TilewiseError) as caught:
        reader(BOMBS[name])
    assert time.process_time() - begin < 1.0
    assert len(caught.value.message) < 1000 and "\n" not in caught.value.message


def test_a_fair_text_is_read_as_the_library_reads_it() -> None:
    text = 'a.b."c d".e = 1.5\nx = """\nb.b\n"q"""""\n[t . u]\ny = [{ z.w = 1 }, \'a#b\']  # c.d.e\nd = 2027-03-01\n'
    found = read_toml(text)
    assert found["a"]["b"]["c d"]["e"] == 1.5 and found["x"] == 'b.b\n"q""' and found["t"]["u"]["y"][0]["z"]["w"] == 1
    allowed = ".".join(["a"] * DEPTH_MAX)
    assert read_toml(f"{allowed} = 1")
    with pytest.raises(ValueError, match="a key of more than 32 parts"):
        read_toml(f"{allowed}.a = 1")


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}'])
def test_what_is_no_character_or_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_json(text)
    assert read_json('{"a": "\\ud83d\\ude00", "b": 1e30}') == {"a": "\U0001f600", "b": 1e30}


@pytest.mark.parametrize("text", ["a = nan", "a = inf", "a = 1e999"])
def test_a_number_of_toml_is_finite(text: str) -> None:
    with pytest.raises(ValueError, match="no finite number"):
        read_toml(text)


def long_requests(question: advisor.PredictRequest) -> dict[str, Any]:
    """One for each method that may work for long; each would take this machine far more than two seconds."""

    def batch(detail: int) -> advisor.BatchPredictRequest:
        found = advisor.BatchPredictRequest()
        for number in range(10_000):
            one = found.requests.add()
            one.CopyFrom(question)
            one.detail = detail
            one.workload.CopyFrom(Workload(phase=PHASE_DECODE, batch=1 + number % 100, context=1 + number))
        return found

    policy = (ROOT / "examples" / "gate" / "tilewise.toml").read_text()
    text = question.model.config_json
    items = [
        CheckItem(path=f"{at}.json", head=text.replace("14336", str(14336 + 8 * at)), base=text) for at in range(2000)
    ]
    mix = [
        WeightedWorkload(workload=Workload(phase=PHASE_TRAIN, batch=at, sequence=4001, mode=MODE_COMPILED))
        for at in range(1, 9)
    ]
    gpus = [question.gpu, "h200-sxm-141gb", "b200-sxm-180gb", "a100-sxm-80gb"]
    return {
        "BatchPredict": batch(advisor.DETAIL_STEP),
        "Sweep": SweepRequest(
            model=question.model, workload=Workload(phase=PHASE_DECODE, batch=1, context=1), gpus=[question.gpu],
            axes=[Axis(field="context", range=Range(first=1, last=100_000))],
        ),
        "Recommend": RecommendRequest(
            model=question.model, workloads=mix, gpus=gpus,
            neighbourhood=Neighbourhood(max_parameter_change=1.0, max_candidate_count=1_000_000),
        ),
        "Check": CheckRequest(policy_toml=policy, items=items, date="2026-11-28"),
    }  # fmt: skip


@pytest.mark.parametrize("method", ["BatchPredict", "Sweep", "Recommend", "Check"])
def test_a_second_after_the_deadline_nothing_is_computed(
    serve: Serve, question: advisor.PredictRequest, method: str
) -> None:
    request = long_requests(question)[method]
    with grpc.insecure_channel(serve()) as channel:
        call = getattr(AdvisorServiceStub(channel), method)
        with pytest.raises(grpc.RpcError) as caught:
            answer = call(request, timeout=2)
            list(answer) if isinstance(answer, Iterator) else answer
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        time.sleep(1)
        begin = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - begin < 0.1


def test_sigterm_ends_a_process_that_is_in_the_middle_of_long_work(question: advisor.PredictRequest) -> None:
    command = [sys.executable, "-m", "tilewise", "serve", "--address", "127.0.0.1:0", "--grace-s", "1"]
    process = subprocess.Popen([*command, "--log-format", "none"], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    bound = process.stderr.readline().split()[-1]
    with grpc.insecure_channel(bound) as channel:
        call = AdvisorServiceStub(channel).BatchPredict.future(long_requests(question)["BatchPredict"])
        deadline = threading.Timer(30, process.kill)
        deadline.start()
        time.sleep(3)
        assert not call.done()
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert time.monotonic() - begin < 4
        assert call.code() is not None
        deadline.cancel()
    process.stderr.close()


def test_a_large_answer_that_nobody_reads_keeps_its_place_for_as_long_as_a_caller_may_stall(
    serve: Serve, servers: list[Server], question: advisor.PredictRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Else a caller could have answer after answer kept in memory."""
    monkeypatch.setattr("tilewise.server.service.rpc.overseer.BYTES_PER_S", 2**30)
    address = serve(stall_s=3.0)
    batch = advisor.BatchPredictRequest(requests=[question] * 8000)  # more than the sockets between hold
    (tmp_path / "batch").write_bytes(batch.SerializeToString())
    script = (
        "import grpc, os, pathlib, signal, sys, time\n"
        "channel = grpc.insecure_channel(sys.argv[1])\n"
        "ask = channel.unary_unary('/tilewise.v1.AdvisorService/BatchPredict')\n"
        "call = ask.future(pathlib.Path(sys.argv[2]).read_bytes())\n"
        "time.sleep(0.05)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    pool = servers[0].lanes.by_name["long"].pool
    process = subprocess.Popen([sys.executable, "-c", script, address, str(tmp_path / "batch")])
    try:
        last = time.monotonic() + 120
        while not pool.inside and time.monotonic() < last:
            time.sleep(0.01)
        begin = time.monotonic()
        while pool.inside and time.monotonic() < last:
            time.sleep(0.01)
        assert begin + 3 < time.monotonic() < last
    finally:
        process.kill()
        process.wait()


def test_a_process_that_hears_nothing_is_ended_after_its_grace() -> None:
    """Work that looks at no deadline, such as a library's own loop, does not keep the process."""
    script = (
        "import sys, threading\n"
        "from tilewise.server.service.app import Server\n"
        "from tilewise.server.service.serve import serve\n"
        "from tilewise.server.service.servicers import HardwareService\n"
        "from tilewise.server.service.settings import Settings\n"
        "HardwareService.GetGpu = lambda *_: threading.Event().wait()\n"
        "for bound in serve(Settings(address='127.0.0.1:0', grace_s=0.5, log_format='none')):\n"
        "    print(bound, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "proto")}
    )  # fmt: skip
    assert process.stdout is not None
    with grpc.insecure_channel(process.stdout.readline().strip()) as channel:
        call = channel.unary_unary("/tilewise.v1.HardwareService/GetGpu").future(b"")
        time.sleep(1)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(15)
        assert time.monotonic() - begin < 5
        assert call.code() is not None
    process.stdout.close()


def test_a_process_over_strangers_files_ends_when_nobody_waits() -> None:
    def alive() -> None:
        if time.monotonic() > last:
            raise Expired("x", reason="EXPIRED")

    last = time.monotonic() + 0.5
    with pytest.raises(Expired):
        confined("signal:pause", alive=alive)
    assert time.monotonic() - last < 2


def test_a_process_over_strangers_files_has_so_much_memory_and_none_of_the_servers_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(TooLarge) as caught:
        confined("builtins:eval", f"len(bytearray({MEMORY_BYTES}))")
    assert caught.value.reason == "TOO_COSTLY"
    monkeypatch.setenv("TILEWISE_STORE", "postgresql://x:secret@y/z")
    assert "secret" not in str(confined("builtins:eval", "dict(__import__('os').environ)"))
    with pytest.raises(TooLarge):  # it writes no file
        confined("builtins:eval", "open('/tmp/tilewise-confined-test', 'w').write('x' * 100000)")
    Path("/tmp/tilewise-confined-test").unlink()


def test_a_validation_stops_at_the_callers_deadline(
    serve: Serve, variant: Callable[[str], Calibration], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, calibration = serve(store=tmp_path / "store"), variant("x")
    list(publish(calibration, address, promote=False))
    monkeypatch.setattr(
        "tilewise.server.service.uploads.confined", lambda *_, alive: confined("signal:pause", alive=alive)
    )
    request = pb.ValidateCalibrationRequest(name=f"gpus/{SKU}/calibrations/{calibration.id}")
    with grpc.insecure_channel(address) as channel:
        token = [("authorization", f"Bearer {access(address).token}")]
        with pytest.raises(grpc.RpcError) as caught:
            CalibrationServiceStub(channel).ValidateCalibration(request, timeout=2, metadata=token)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        time.sleep(1)
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        assert not any("confined" in Path(f"/proc/{pid}/cmdline").read_text() for pid in children)


def test_no_cache_grows_with_what_callers_send() -> None:
    """One without a bound has keys that files of ours count: families, enums, methods, kinds."""
    unbounded = set()
    for room in (tilewise.hwdb, tilewise.server):
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for name, made in vars(importlib.import_module(found.name)).items():
                asks = hasattr(made, "cache_info") and made.__module__ == found.name and signature(made).parameters
                if asks and made.cache_info().maxsize is None:
                    unbounded.add(name)
    assert unbounded == {
        "_there", "_flags", "family", "_load", "words", "prefix", "living", "first_factors", "needs",
    }  # fmt: skip


def test_keys_and_texts_of_many_configs_are_not_kept() -> None:
    config = json.loads((ROOT / "examples" / "llama-3-8b.json").read_text())
    for number in range(3):
        keys = {f"dropout_{number}_{at}": 0.0 for at in range(5000)}
        read(json.dumps(config | keys))
        check_stated(json.dumps(config | keys))
    assert families._is_harmless.cache_info().currsize <= 4096
    assert families.is_harmless("dropout_1") and not families.is_harmless("dropout_" * 100)
    before = stated._defaulted.cache_info().currsize
    check_stated(json.dumps(config | {"architectures": ["x" * 20_000]}))
    assert stated._defaulted.cache_info().currsize == before
