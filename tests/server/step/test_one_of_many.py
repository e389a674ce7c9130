"""A candidate of a pass over many, taken out of it, is what predict says of it alone."""

from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.server.architecture import read_with
from tilewise.server.step.predict import predict, predict_many, table_report
from tilewise.server.workload import Workload, together

MODEL = Path(__file__).parents[3] / "examples" / "llama-3-8b.json"
WIDTHS, SEQUENCES = np.array([8192, 11008, 14336]), np.array([512, 2048, 4096])


@pytest.mark.parametrize("phase", ["train", "prefill"])
@pytest.mark.parametrize("sku", ["h100-sxm5-80gb", "b200-sxm-180gb"])
def test_a_candidate_taken_out_of_a_pass_is_what_predict_says_of_it_alone(sku: str, phase: str) -> None:
    gpu, text, work = Database.packaged().gpu(sku), MODEL.read_text(), Workload(phase=phase, sequence=512)
    arch = read_with(text, {"intermediate_size": WIDTHS}, "")
    found = predict_many(gpu, arch, together(work, {"sequence": SEQUENCES}))
    for at, (width, sequence) in enumerate(zip(WIDTHS.tolist(), SEQUENCES.tolist(), strict=True)):
        own = Workload(phase=phase, sequence=sequence)
        one = table_report(found.steps.only(at, own))
        alone = predict(gpu, read_with(text, {"intermediate_size": width}, ""), own)
        assert one.step == alone.step
        assert one.layers == alone.layers
        assert one.operators == alone.operators
