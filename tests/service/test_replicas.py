"""Several processes as one service: workers behind a port, replicas over a database."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from google.protobuf.message import Message

from tilewise.client.client import TilewiseClient
from tilewise.client.publish import publish
from tilewise.client.remote import Remote, ServerError
from tilewise.hwdb.calibration import Calibration
from tilewise.server.service.app import start
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1.advisor_service_pb2 import PredictRequest

RUN = [sys.executable, "-c", "from tilewise.client.cli import main; main()", "serve", "--log-format", "text"]
SKU = "h100-sxm5-80gb"
SEEN_S = 5.0  # a second at most on a machine of its own: replicas look four times in it
Variant = Callable[[str], Calibration]


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `tilewise serve` and its address. It must end well when told to."""
    command = [*RUN, "--address", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        line = ""
        while not line.startswith("serving on "):
            line = running.stderr.readline()
            assert line, "it ended before it served"
        yield running, line.removeprefix("serving on ").strip()
        running.terminate()
        assert running.wait(30) == 0


def children(pid: int) -> set[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return {int(word) for word in found.stdout.split()}


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> float:
    """Seconds until a condition holds."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + seconds, "it did not come about"
        time.sleep(0.01)
    return time.monotonic() - begin


def active(address: str) -> str:
    with TilewiseClient(address) as client:
        return client.get_gpu(SKU).gpu.calibration


def test_a_promotion_is_seen_by_every_replica_by_itself(where: str, variant: Variant) -> None:
    calibration = variant("a")
    first, second = (start("127.0.0.1:0", store=where) for _ in range(2))
    try:
        addresses = [f"127.0.0.1:{port}" for _, port in (first, second)]
        list(publish(calibration, addresses[0], promote=True))
        assert active(addresses[0]) == calibration.id
        assert wait_for(lambda: active(addresses[1]) == calibration.id) < SEEN_S
        remote = Remote(addresses[1])
        other = variant("b")
        list(publish(other, addresses[1], promote=True))
        assert wait_for(lambda: active(addresses[0]) == other.id) < SEEN_S
        remote("CalibrationService", "RollbackCalibration", pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}"))
        assert wait_for(lambda: active(addresses[0]) == calibration.id) < SEEN_S
        remote.close()
    finally:
        for server, _ in (first, second):
            server.stop(0).wait()


def test_an_upload_that_begins_at_one_replica_ends_at_another(where: str, variant: Variant) -> None:
    from tilewise.client import publish as publishing

    calibration = variant("a")
    name = f"gpus/{SKU}/calibrations/{calibration.id}"
    running = [start("127.0.0.1:0", store=where) for _ in range(2)]
    try:
        here, there = (Remote(f"127.0.0.1:{port}") for _, port in running)

        def arrived() -> int:
            begun = publishing._send(there, iter([publishing._header(calibration, name)]))
            return sum(begun.received_bytes.values())

        def broken() -> Iterator[Message]:
            messages = publishing._messages(calibration, name, {})
            for _ in range(3):
                yield next(messages)
            wait_for(lambda: arrived() > 0)
            raise OSError("the line went dead")

        with pytest.raises(ServerError):
            here("CalibrationService", "UploadCalibration", broken())  # type: ignore[arg-type]
        begun = publishing._send(there, iter([publishing._header(calibration, name)]))
        assert sum(begun.received_bytes.values()) > 0 and not begun.HasField("calibration")
        ended = publishing._send(there, publishing._messages(calibration, name, dict(begun.received_bytes)))
        assert ended.calibration.id == calibration.id
        # the other replica is asked at once, before it looks again by itself
        checked = here("CalibrationService", "ValidateCalibration", pb.ValidateCalibrationRequest(name=name))
        assert isinstance(checked, pb.ValidateCalibrationResponse) and checked.publishable
        here.close()
        there.close()
    finally:
        for server, _ in running:
            server.stop(0).wait()


def test_while_the_database_is_gone_questions_are_answered_and_changes_wait(
    postgresql: str, variant: Variant, question: PredictRequest
) -> None:
    import psycopg

    calibration = variant("a")
    server, port = start("127.0.0.1:0", store=postgresql, poll_s=0.05)
    address = f"127.0.0.1:{port}"
    base, _, options = postgresql.partition("?")
    name, admin = base.rpartition("/")[2], f"{base.rpartition('/')[0]}/postgres?{options}"
    with psycopg.connect(admin, autocommit=True) as connection:

        def allow(allowed: bool) -> None:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

        try:
            list(publish(calibration, address, promote=True))
            allow(False)
            wait_for(lambda: not server.tenants.reachable)
            with TilewiseClient(address) as client:
                assert client.predict(question).gpu.calibration == calibration.id
            remote = Remote(address)
            with pytest.raises(Exception, match="store's database cannot be reached") as caught:
                remote("CalibrationService", "RollbackCalibration", pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}"))
            assert type(caught.value).__name__ == "Unavailable"
            allow(True)
            wait_for(lambda: server.tenants.reachable)
            log = remote("CalibrationService", "ListPublications", pb.ListPublicationsRequest(parent=f"gpus/{SKU}"))
            assert isinstance(log, pb.ListPublicationsResponse) and len(log.publications) == 2
            remote.close()
        finally:
            allow(True)
            server.stop(0).wait()


def test_workers_share_a_port_and_one_that_is_killed_comes_back(question: PredictRequest, tmp_path: Path) -> None:
    metrics = free_port()
    with process("--workers", "2", "--metrics-address", metrics, "--store", str(tmp_path)) as (parent, address):
        first = children(parent.pid)
        assert len(first) == 2
        for _ in range(8):  # each channel reaches one of the workers
            with TilewiseClient(address) as client:
                client.predict(question)
        assert counted(metrics) == 8
        os.kill(min(first), signal.SIGKILL)
        answered = 0
        for _ in range(20):  # what was sent to the dead one is sent again by the client
            with TilewiseClient(address) as client:
                answered += client.predict(question).step.prediction.time_s > 0
        assert answered == 20
        wait_for(lambda: len(children(parent.pid)) == 2 and children(parent.pid) != first)
        wait_for(lambda: page(metrics, "/readyz") == "ready\n")
        assert counted(metrics) == 28
    assert not [pid for pid in first if Path(f"/proc/{pid}").exists()]


def test_workers_end_with_their_parent_whatever_ends_it() -> None:
    with subprocess.Popen(
        [*RUN, "--address", "127.0.0.1:0", "--workers", "2"], stderr=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stderr is not None
        while not parent.stderr.readline().startswith("serving on "):
            pass
        workers = children(parent.pid)
        parent.kill()
        parent.wait()
        wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in workers))


def test_a_worker_that_cannot_start_stops_the_server(tmp_path: Path) -> None:
    (tmp_path / "callers.toml").write_text("nonsense")
    done = subprocess.run(
        [*RUN, "--address", "127.0.0.1:0", "--workers", "2", "--tokens", str(tmp_path / "callers.toml")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3 and "a worker did not come up" in done.stderr and "no TOML" in done.stderr


def test_a_port_that_a_stranger_has_is_not_shared() -> None:
    server, port = start("127.0.0.1:0")
    done = subprocess.run(
        [*RUN, "--address", f"127.0.0.1:{port}", "--workers", "2"], capture_output=True, text=True, check=False
    )
    server.stop(0).wait()
    assert done.returncode == 2 and "cannot listen on" in done.stderr


def counted(metrics: str) -> int:
    """Predictions that all workers together have answered."""
    lines = [line for line in page(metrics, "/metrics").splitlines() if line.startswith("tilewise_predictions_total{")]
    return int(sum(float(line.split()[-1]) for line in lines))


def page(metrics: str, path: str) -> str:
    with suppress(OSError), urllib.request.urlopen(f"http://{metrics}{path}") as answer:
        content: bytes = answer.read()
        return content.decode()
    return ""


def free_port() -> str:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"
