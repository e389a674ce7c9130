"""What is known of each family's program, and what an answer makes of it."""

import importlib.metadata
import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.times import Trust
from tilewise.server.architecture import read
from tilewise.server.architecture.families import names
from tilewise.server.operators.programs import AGREES, lines, plain_factors, program_of, ratio
from tilewise.server.step.predict import predict
from tilewise.server.step.report import Report
from tilewise.server.workload import CHOICES, Workload

ROOT = Path(__file__).resolve().parents[3]
COMPARED = [line for line in lines().values() if not line["reason"]]
PREFILL = Workload(phase="prefill", batch=1, sequence=2048, stack="transformers")


def llama_like(model_type: str) -> Report:
    keys = {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 4}
    arch = read(json.dumps({"model_type": model_type, "vocab_size": 64000, **keys}))
    return predict(Database.packaged().gpu("h100-sxm5-80gb"), arch, PREFILL)


@pytest.mark.parametrize("family", names())
def test_every_family_was_compared_in_every_phase_or_the_table_says_why_not(family: str) -> None:
    for phase in CHOICES["phase"]:
        line = lines()[family, phase]
        assert bool(line["reason"]) != bool(line["kernels_traced"])


@pytest.mark.parametrize(
    ("quantity", "near", "share"), [("kernels", 0.03, 0.92), ("flops", 0.001, 0.95), ("bytes", 0.05, 0.9)]
)
def test_most_programs_are_those_that_transformers_launches(quantity: str, near: float, share: float) -> None:
    differences = [abs(ratio(line, quantity) - 1) for line in COMPARED]
    assert np.mean(np.array(differences) <= near) >= share


@pytest.mark.parametrize("phase", CHOICES["phase"])
def test_what_other_families_are_off_by_without_their_variants_covers_the_one_left_out(phase: str) -> None:
    seen = [line for line in COMPARED if line["phase"] == phase and line["plain"]]
    covered = []
    for line in seen:
        least, most = plain_factors(phase, line["family"])
        covered.append(least <= 1 / float(line["plain"]) <= most)
    assert np.mean(covered) >= 0.85


def test_a_program_that_was_never_compared_is_less_trusted_wider_and_says_so() -> None:
    known, unknown = llama_like("llama"), llama_like("baichuan")
    assert known.step.trust == Trust.MEASURED and not any("transformers' own code" in note for note in known.notes)
    assert unknown.step.trust < Trust.MEASURED
    assert any(note.startswith("never compared") for note in unknown.notes)
    assert known.step.time is not None and unknown.step.time is not None
    assert unknown.step.time.high_s > 1.5 * known.step.time.high_s
    assert unknown.step.time.low_s <= 1.01 * known.step.time.low_s  # its own sequence differs a little


def test_a_program_that_differs_widens_by_what_was_found() -> None:
    arch = read(json.dumps({"model_type": "deepseek_v4", "num_hidden_layers": 4}))
    program = program_of(arch, PREFILL)
    assert program.time == (1.0, pytest.approx(ratio(lines()["deepseek_v4", "prefill"], "time_us")))
    assert "differs" in program.why


def test_an_engines_program_is_not_judged_by_transformers_code() -> None:
    arch = read(json.dumps({"model_type": "baichuan"}))
    assert program_of(arch, Workload(phase="decode", batch=1, context=2048, stack="vllm")) == AGREES


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    made = (ROOT / "server" / "operators" / "programs.csv").read_text(encoding="utf-8").splitlines()[0]
    if f"transformers {importlib.metadata.version('transformers')}," not in made:
        pytest.skip(f"another version of transformers than the table's: {made}")
    spec = spec_from_file_location("compare_families", ROOT / "scripts" / "research" / "compare_families.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.answer_for_the_gpu()
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["llama", "gpt2", "falcon", "deepseek_v2", "gpt_oss", "bert"])
def test_the_table_is_what_the_script_finds(script: ModuleType, family: str) -> None:
    for line in script.lines(family):
        kept = lines()[family, line["phase"]]
        for name in line:
            assert line[name] == kept[name], (line["phase"], name)
