"""Shapes that are asked together are answered as each alone: every field, to the bit, also where their operators are unlike."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.hwdb.database import Database
from tilewise.server.service.servicers import AdvisorService
from tilewise.v1.advisor_service_pb2 import (
    DETAIL_OPERATORS,
    DETAIL_STEP,
    BatchPredictRequest,
    PredictRequest,
    PredictResponse,
    PredictResult,
)  # fmt: skip
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import (
    MODE_COMPILED,
    MODE_EAGER,
    MODE_GRAPH,
    MODE_UNSPECIFIED,
    PHASE_DECODE,
    PHASE_PREFILL,
    PHASE_TRAIN,
    PRECISION_FP8,
    STACK_VLLM,
    STATE_SUSTAINED,
    Workload,
)  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "configs"
CONFIGS = [*sorted(FIXTURES.glob("*.json")), ROOT / "examples" / "qwen3-30b-a3b.json", ROOT / "examples" / "gpt2.json"]
GPUS = ("h100-sxm5-80gb", "b200-sxm-180gb", "mi300x", "a100-sxm-80gb")
WORKLOADS = [
    *(Workload(phase=PHASE_TRAIN, batch=2, sequence=1024, mode=mode) for mode in (MODE_EAGER, MODE_COMPILED)),
    *(Workload(phase=PHASE_PREFILL, batch=1, sequence=777, mode=mode) for mode in (MODE_EAGER, MODE_GRAPH)),
    *(Workload(phase=PHASE_DECODE, batch=8, context=2048, mode=mode) for mode in (MODE_EAGER, MODE_COMPILED, MODE_GRAPH)),
    Workload(phase=PHASE_DECODE, batch=3, context=512, mode=MODE_UNSPECIFIED, stack=STACK_VLLM, precision=PRECISION_FP8),
    Workload(phase=PHASE_PREFILL, batch=4, sequence=2048, mode=MODE_COMPILED, tensor_parallel=4, state=STATE_SUSTAINED),
]  # fmt: skip
SIZES = {
    "intermediate_size": st.integers(1, 512).map(lambda n: 32 * n),
    "num_hidden_layers": st.integers(1, 40),
    "head_dim": st.sampled_from((64, 100, 128, 256)),
    "sliding_window": st.sampled_from((0, 64, 512, 4096)),
    "vocab_size": st.integers(8, 4096).map(lambda n: 32 * n + n % 3),
    "num_experts": st.sampled_from((0, 8, 16, 64, 128)),
}


@pytest.fixture(scope="module")
def advisor() -> AdvisorService:
    return AdvisorService(Database.packaged())


def asked(config: Path, gpu: str, workload: Workload, detail: int, **sizes: int) -> PredictRequest:
    model = Model(config_json=config.read_text(encoding="utf-8"), name=config.stem, overrides=sizes)
    return PredictRequest(model=model, gpu=gpu, workload=workload, detail=detail)  # type: ignore[arg-type]


def batch(advisor: AdvisorService, requests: list[PredictRequest]) -> list[PredictResult]:
    return list(advisor.BatchPredict(BatchPredictRequest(requests=requests)).results)


def exact(result: PredictResult) -> bytes:
    return result.SerializeToString(deterministic=True)


@settings(max_examples=60, deadline=None)
@given(
    config=st.sampled_from(CONFIGS), gpu=st.sampled_from(GPUS), workload=st.sampled_from(WORKLOADS),
    sizes=st.sampled_from(sorted(SIZES)).flatmap(
        lambda name: st.lists(st.fixed_dictionaries({name: SIZES[name]}), min_size=2, max_size=9)
    ),
)  # fmt: skip
def test_a_batch_answers_every_shape_as_alone(
    advisor: AdvisorService, config: Path, gpu: str, workload: Workload, sizes: list[dict[str, int]]
) -> None:
    requests = [asked(config, gpu, workload, DETAIL_STEP, **each) for each in sizes]
    for request, result in zip(requests, batch(advisor, requests), strict=True):
        (alone,) = batch(advisor, [request])
        assert exact(result) == exact(alone), f"{result}\n{alone}"


@pytest.mark.parametrize(("workload", "gpu"), list(product(WORKLOADS, GPUS[:2])), ids=str)
def test_a_step_carries_the_same_fields_at_every_detail(advisor: AdvisorService, workload: Workload, gpu: str) -> None:
    brief, whole = (
        advisor.Predict(asked(CONFIGS[3], gpu, workload, detail)) for detail in (DETAIL_STEP, DETAIL_OPERATORS)
    )
    assert whole.layers and whole.operators and brief.step.losses and brief.memory.parts and brief.summary
    for name in ("rows", "layers", "operators"):
        whole.ClearField(name)  # type: ignore[arg-type]
    assert brief == whole


def test_a_batch_carries_what_only_one_of_its_shapes_has(advisor: AdvisorService) -> None:
    config = ROOT / "examples" / "llama-3-8b.json"
    work = Workload(phase=PHASE_PREFILL, batch=1, sequence=512, tensor_parallel=4)
    odd, even = (each.response for each in batch(
        advisor, [asked(config, "h100-sxm5-80gb", work, DETAIL_STEP, vocab_size=size) for size in (50257, 50304)]
    ))  # fmt: skip
    assert noted(odd, "vocabulary 50257 is padded") and not noted(even, "padded")


def noted(answer: PredictResponse, words: str) -> bool:
    return any(words in note for note in answer.architecture.notes)
