"""A calibration goes to a server over gRPC, is checked, and answers."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tilewise.client import publish as publishing
from tilewise.client.client import TilewiseClient
from tilewise.client.remote import Remote
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import Conflict, InvalidInput, NotAvailable, NotFound
from tilewise.hwdb.judged import judged
from tilewise.server.service.app import start
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1 import calibration_service_pb2_grpc

Make = Callable[..., Calibration]
SKU = "h100-sxm5-80gb"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    process, port = start("127.0.0.1:0", store=tmp_path / "store")
    yield f"127.0.0.1:{port}"
    process.stop(0).wait()


def lines(calibration: Calibration, server: str, promote: bool = True) -> list[str]:
    return list(publishing.publish(calibration, server, promote=promote))


def states(server: str) -> dict[str, int]:
    with TilewiseClient(server) as client:
        return {found.id: found.state for found in client.list_calibrations(SKU).calibrations}


def test_a_published_calibration_answers(make: Make, server: str) -> None:
    calibration = make("a")
    said = lines(calibration, server)
    assert said[0] == f"uploaded gpus/{SKU}/calibrations/{calibration.id}"
    assert said[-1].endswith("answers now")
    with TilewiseClient(server) as client:
        assert client.get_gpu(SKU).gpu.calibration == calibration.id


def test_without_promotion_it_is_a_candidate(make: Make, server: str) -> None:
    calibration = make("a")
    before = states(server)
    assert lines(calibration, server, promote=False)[-1].endswith("--promote makes it answer")
    with TilewiseClient(server) as client:
        assert client.get_gpu(SKU).gpu.calibration != calibration.id
    assert set(states(server)) - set(before) == {calibration.id}


def test_a_second_calibration_is_compared_with_the_active_one(make: Make, server: str) -> None:
    lines(make("a"), server)
    said = lines(make("b", scale=1.05), server)
    assert any(line.startswith("gemm: 1.05") for line in said)


def test_without_its_measurements_nothing_is_sent(make: Make, server: str) -> None:
    calibration = make("a")
    shutil.rmtree(calibration.folder / "measurements")
    before = states(server)
    with pytest.raises(NotFound, match="name the folder"):
        lines(Calibration.open(calibration.folder), server)
    assert states(server) == before


def test_against_an_active_one_without_measurements_a_warning_stands_for_the_comparison(make: Make) -> None:
    active, new = make("a"), make("b", scale=1.05)
    folders = str(Database.packaged().folder), SKU, str(new.folder), str(active.folder)
    whole = judged(*folders)
    shutil.rmtree(active.folder / "measurements")
    bare = judged(*folders)
    assert whole["changes"] and not whole["not_compared"]
    assert bare["not_compared"] and not bare["changes"]


def test_publishing_twice_uploads_once(make: Make, server: str) -> None:
    calibration = make("a")
    lines(calibration, server)
    assert lines(calibration, server)[-1].endswith("answers now")


def test_what_is_above_the_peak_is_uploaded_but_never_answers(make: Make, server: str) -> None:
    calibration = make("a", scale=0.5)
    with pytest.raises(NotAvailable, match="must not answer"):
        lines(calibration, server)
    remote = Remote(server)
    request = pb.PublishCalibrationRequest(name=f"gpus/{SKU}/calibrations/{calibration.id}")
    with pytest.raises(NotAvailable, match="above the peak"):
        remote("CalibrationService", "PublishCalibration", request)
    remote.close()


def test_a_stream_that_breaks_leaves_no_calibration_and_can_go_on(make: Make, server: str) -> None:
    calibration = make("a")
    name = f"gpus/{SKU}/calibrations/{calibration.id}"
    before = states(server)

    def broken() -> Iterator[pb.UploadCalibrationRequest]:
        messages = publishing._messages(calibration, name, {})
        yield next(messages)
        yield next(messages)
        raise OSError("the line went dead")

    with grpc.insecure_channel(server) as channel:
        stub = calibration_service_pb2_grpc.CalibrationServiceStub(channel)
        with pytest.raises(grpc.RpcError):
            stub.UploadCalibration(broken())
    assert states(server) == before
    assert lines(calibration, server)[-1].endswith("answers now")


def test_rolling_back_makes_the_earlier_one_answer(make: Make, server: str) -> None:
    first, second = make("a"), make("b", scale=1.05)
    lines(first, server)
    lines(second, server)
    remote = Remote(server)
    answer = remote("CalibrationService", "RollbackCalibration", pb.RollbackCalibrationRequest(parent=f"gpus/{SKU}"))
    assert isinstance(answer, pb.RollbackCalibrationResponse)
    assert (answer.calibration.id, answer.previous) == (first.id, second.id)
    stale = pb.PublishCalibrationRequest(name=f"gpus/{SKU}/calibrations/{second.id}", expected_active=second.id)
    with pytest.raises(Conflict):
        remote("CalibrationService", "PublishCalibration", stale)
    remote.close()


@pytest.mark.parametrize("name", ["", "gpus/x", "gpus//calibrations/a", "gpus/a/calibrations/b/c"])
def test_a_name_of_another_form_is_refused(server: str, name: str) -> None:
    remote = Remote(server)
    with pytest.raises(InvalidInput):
        remote("CalibrationService", "ValidateCalibration", pb.ValidateCalibrationRequest(name=name))
    with pytest.raises(NotFound):
        remote(
            "CalibrationService",
            "ValidateCalibration",
            pb.ValidateCalibrationRequest(name=f"gpus/{SKU}/calibrations/x"),
        )
    remote.close()
