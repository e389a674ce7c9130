"""Clients that know nothing of this package: one that asks the server for the contract, one generated for node."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tilewise.client.client import TilewiseClient
from tilewise.server.service.app import start
from tilewise.v1.advisor_service_pb2 import PredictRequest
from tilewise.v1.workload_pb2 import PHASE_PREFILL, Workload

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "llama-3-8b.json"
CLIENT = ROOT / "examples" / "clients" / "node"


@pytest.fixture
def server() -> Iterator[str]:
    running, port = start("127.0.0.1:0")
    yield f"127.0.0.1:{port}"
    running.stop(0).wait()


@pytest.fixture
def expected() -> PredictRequest:
    """What our own client answers to the question that the others ask."""
    workload = Workload(phase=PHASE_PREFILL, batch=1, sequence=2048)
    request = PredictRequest(model={"config_json": CONFIG.read_text()}, workload=workload, gpu="h100-sxm5-80gb")
    with TilewiseClient() as client:
        return client.predict(request)


def by_reflection(address: str, method: str, question: dict[str, Any]) -> dict[str, Any]:
    """As grpcurl does: the messages' types come from the server, the question and the answer are JSON."""
    with grpc.insecure_channel(address) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        service, _, name = method.partition("/")
        found = pool.FindServiceByName(service).FindMethodByName(name)
        request, response = (GetMessageClass(kind) for kind in (found.input_type, found.output_type))
        call = channel.unary_unary(f"/{method}", request.SerializeToString, response.FromString)
        return MessageToDict(call(ParseDict(question, request())), descriptor_pool=pool)


def test_a_tool_that_has_the_contract_from_the_server_alone_is_answered(server: str, expected: Any) -> None:
    question = {
        "model": {"configJson": CONFIG.read_text()},
        "workload": {"phase": "PHASE_PREFILL", "batch": 1, "sequence": "2048"},
        "gpu": "h100-sxm5-80gb",
    }
    answer = by_reflection(server, "tilewise.v1.AdvisorService/Predict", question)
    assert answer["step"]["prediction"]["timeS"] == expected.step.prediction.time_s
    listed = by_reflection(server, "tilewise.v1.HardwareService/ListGpus", {})
    assert len(listed["gpus"]) >= 18


def test_a_client_generated_for_node_is_answered(server: str, expected: Any, tmp_path: Path) -> None:
    """examples/clients/node, built from the .proto files by other people's tools."""
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("node and npm are not installed")
    folder = tmp_path / "node"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "generated", "built"))
    environment = {**os.environ, "PYTHON": sys.executable, "TILEWISE_PROTO": str(ROOT / "proto")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    installed = run("npm", "install", "--silent", "--no-audit", "--no-fund")
    if installed.returncode:
        pytest.skip(f"npm could not install the tools: {installed.stderr.strip()[-200:]}")
    for step in ("generate", "build"):
        done = run("npm", "run", "--silent", step)
        assert done.returncode == 0, done.stdout + done.stderr
    asked = run("node", "built/predict.js", str(CONFIG), server)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["time_s"] == expected.step.prediction.time_s
    environment["TILEWISE_GPU"] = "h999"
    refused = run("node", "built/predict.js", str(CONFIG), server)
    assert refused.returncode == 1 and refused.stderr.startswith("error 5: ") and "h100-sxm5-80gb" in refused.stderr
