"""A hundred configs with one key changed, against the library's own classes: exact, or refused with the key's name."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip(
    "transformers", reason="the classes that are counted against are in no dependency: transformers is not installed"
)

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "research" / "check_keys.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_keys", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_keys"] = module
    sys.path.insert(0, str(SCRIPT.parent))
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # those of the library
def test_a_changed_key_is_counted_as_the_class_does_or_refused_by_name(script: ModuleType) -> None:
    sample = script.sampled(100)
    assert len(sample) > 70  # the others the class itself refuses
    assert not [trial for trial in sample if trial.wrong]
