"""A policy and a model that the gate's tests edit."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tilewise.server.service.servicers import services
from tilewise.v1.check_pb2 import CheckItem, CheckRequest, CheckResponse

GPU = "h100-sxm5-80gb"
POLICY = """
[check]
gpus = ["h100-sxm5-80gb"]

[[check.workload]]
name = "train"
phase = "train"
batch = 4
sequence = 2048

[[check.budget]]
config = "configs/*.json"
metric = "time_s"
max_regression = "2 %"
message = "ask first"
"""
GPT_NEOX = {
    "model_type": "gpt_neox", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32,
    "num_hidden_layers": 8, "vocab_size": 50304, "hidden_act": "gelu",
}  # fmt: skip
Check = Callable[..., CheckResponse]


@pytest.fixture
def check() -> Check:
    """Check one edited model; `base` None: it is new."""

    def judge(
        policy: str = POLICY, base: dict[str, Any] | None = GPT_NEOX, date: str = "2026-11-28", **edits: Any
    ) -> CheckResponse:
        item = CheckItem(path="configs/a.json", head=json.dumps({**GPT_NEOX, **edits}, indent=2))
        if base is not None:
            item.base = json.dumps(base)
        return ask(CheckRequest(policy_toml=policy, items=[item], date=date))

    return judge


def ask(request: CheckRequest) -> CheckResponse:
    answer = services()["AdvisorService"].Check(request)  # type: ignore[attr-defined]
    assert isinstance(answer, CheckResponse)
    return answer
