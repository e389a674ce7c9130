"""Every real config, asked on the calibrated GPU in each phase: a time or a reason, and never a warning."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.server.architecture import read
from tilewise.server.step.predict import predict
from tilewise.server.workload import Workload

QUESTIONS: tuple[dict[str, Any], ...] = (
    {"phase": "train", "sequence": 4096},
    {"phase": "prefill", "sequence": 2048, "mode": "compiled"},
    {"phase": "decode", "context": 4096, "batch": 16},
    {"phase": "decode", "context": 4096, "mode": "graph"},
)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: "-".join(map(str, question.values())))
def test_a_real_config_has_a_time_with_an_interval_or_a_reason(question: dict[str, Any], configs: Path) -> None:
    gpu = Database.packaged().gpu("h100-sxm5-80gb")
    answers: Counter[str] = Counter()
    for path in sorted((configs).glob("*/*.json")):
        try:
            architecture = read(path.read_text(encoding="utf-8"), path.stem)
        except TilewiseError:
            continue  # the reader's own tests name these
        if question["phase"] == "decode" and architecture.stacks[-1].name != "decoder":
            with pytest.raises(InvalidInput, match="does not decode"):
                predict(gpu, architecture, Workload(**{"batch": 1, **question}))
            answers["an encoder"] += 1
            continue
        step = predict(gpu, architecture, Workload(**{"batch": 1, **question})).step
        answers["answered" if step.time else "refused"] += 1
        if step.time is None:
            assert step.refusal, path.name
        else:
            assert 0 < step.time.low_s < step.time.time_s < step.time.high_s and np.isfinite(step.time.high_s), (
                path.name
            )
            assert step.mfu is not None and 0 <= step.mfu < 1, path.name
    assert answers["answered"] + answers["an encoder"] >= 105 and answers["refused"] <= 4, answers
    assert answers["an encoder"] <= 12
