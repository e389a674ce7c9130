"""What nobody reasonable sends is refused as the sender's fault, and the server is there afterwards."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import grpc
import pytest

from tilewise.client.client import TilewiseClient
from tilewise.server.service.rpc.methods import methods

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "stress"))
Serve = Callable[..., str]
MESSAGES = 150


def test_messages_out_of_the_blue_find_no_bug_in_any_method(serve: Serve, tmp_path: Path) -> None:
    """A short run of scripts/stress/fuzz_service.py, which sends 100,000 to each method."""
    address = serve(store=tmp_path / "store")
    results = list(import_module("fuzz_service").run(address, MESSAGES, seed=3))
    assert {method.name for method, *_ in results} == {method.name for method in methods()}
    assert [bug for _, _, bugs, _ in results for bug in bugs] == []
    assert all(sum(codes.values()) == MESSAGES for _, codes, _, _ in results)
    answered = {method.name for method, codes, _, _ in results if codes["OK"]}
    assert {"Predict", "BatchPredict", "ListGpus"} <= answered  # it does not only knock at the door
    with TilewiseClient(address) as client:
        assert client.list_gpus().gpus


@pytest.mark.parametrize("token", ["", "x" * 5000, "Bearer", "é"])
def test_a_wrong_token_of_any_form_is_unauthenticated(serve: Serve, callers: Callable[..., str], token: str) -> None:
    address = serve(tokens=callers({"token": "good"}))
    with grpc.insecure_channel(address) as channel:
        metadata = [("authorization", f"Bearer {token}".encode("latin-1", "replace").decode("ascii", "ignore"))]
        for method in methods():
            with pytest.raises(grpc.RpcError) as caught:
                list(channel.stream_stream(method.path)(iter([b""]), metadata=metadata, timeout=10))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.path
