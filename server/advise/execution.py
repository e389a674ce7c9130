"""Another way to run the same model, in the order of what it costs: compile, graph, tensor-core format, batch, parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewise.hwdb.launch import MODES
from tilewise.server.advise.advice import Kind, Recommendation
from tilewise.server.advise.asked import Asked
from tilewise.server.advise.weigh import Scales

BATCHES = (2, 4, 8)
SAME_FORMAT = {"fp32": ("tf32", "bf16"), "tf32": ("bf16",), "fp64": ("fp32", "tf32", "bf16")}  # onto tensor cores


def executions(scales: Scales) -> Iterator[Recommendation]:
    """Every way that applies to all workloads and fits; of the batches only the best one."""
    for changed in ways(scales.asked):
        found = [scales.weigh(Kind.EXECUTION, workload=each) for each in changed]
        possible = [each for each in found if each is not None]
        if possible:
            yield min(possible, key=lambda each: each.score)


def ways(asked: Sequence[Asked]) -> Iterator[list[dict[str, Any]]]:
    """Alternatives of which one is worth telling, as fields of the workload; only what all workloads can change alike."""
    work = asked[0].workload
    alike = {name for name in work.__struct_fields__ if len({getattr(each.workload, name) for each in asked}) == 1}
    if "mode" in alike:
        yield from ([{"mode": mode}] for mode in MODES[MODES.index(work.mode) + 1 :])
    if (
        "attention_backend" in alike
        and work.phase == "decode"
        and (work.mode, work.attention_backend) == ("eager", "auto")
    ):
        yield [{"attention_backend": "flash"}]  # cuDNN plans each length of a growing cache
    if "precision" in alike:
        yield from ([{"precision": name}] for name in SAME_FORMAT.get(work.precision, ()))
    if "batch" in alike:
        yield [{"batch": work.batch * times} for times in BATCHES]
    if "recompute" in alike and work.recompute != "none":
        yield [{"recompute": "none"}]
    if "tensor_parallel" in alike and work.tensor_parallel % 2 == 0:
        yield [{"tensor_parallel": work.tensor_parallel // 2}]
