"""The config reader against the trace of transformers' own model of the same config: FLOPs of a whole training step."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tilewise.hwdb.table import OperatorTable
from tilewise.server.architecture import read
from tilewise.server.operators import build
from tilewise.server.operators.conventions import causal_flops, full_flops
from tilewise.server.trace import trace
from tilewise.server.workload import Workload

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # GPT-BigCode's
BATCH, SEQUENCE = 2, 320
# families whose code in transformers has no fused attention: their products are counted over every pair
WITHOUT_SDPA = ("gptj", "bloom", "opt")
MASKED = ("falcon",)  # hands sdpa a mask instead of the causal flag, so the kernel computes every pair
SINUSOIDS_STORED = ("gptj",)  # a buffer, where the reader counts the product that makes the rotary table


def tool() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "tools" / "trace_transformers.py"
    spec = spec_from_file_location("trace_transformers", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.assume_unpacked_batches()
    return module


TOOL = tool()


def both(family: str) -> tuple[OperatorTable, OperatorTable]:
    """The traced and the read table of one training step without the optimizer."""
    attention = "eager" if family in WITHOUT_SDPA else "sdpa"
    model, config = TOOL.build(family, TOOL.FAMILIES[family], 2, attention)
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long, device="meta")
    mask = {"attention_mask": torch.ones_like(ids)} if family in WITHOUT_SDPA else {}
    workload = Workload(phase="train", batch=BATCH, sequence=SEQUENCE, optimizer="none")
    model.eval()  # OPT drops layers at random in training
    return trace(model, input_ids=ids, labels=ids, **mask), build(read(json.dumps(config)), workload)


@pytest.mark.parametrize("family", TOOL.FAMILIES)
def test_the_config_reader_counts_the_flops_that_the_module_has(family: str) -> None:
    traced, counted = both(family)
    assert not traced.unknown.any()
    close = 1e-6 if family in SINUSOIDS_STORED else 1e-12
    assert full_flops(traced)[0] == pytest.approx(full_flops(counted)[0], rel=close)
    if family not in (*WITHOUT_SDPA, *MASKED):
        assert causal_flops(traced)[0] == pytest.approx(causal_flops(counted)[0], rel=1e-12)
