"""`tilewise check --init` and --schema: a first policy that judges what is found, and what an editor needs to know of it."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tilewise.client.gate.init import patterns
from tilewise.server.gate.policy import read
from tilewise.server.gate.schema import schema

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "configs/gpt-neox-2.7b.json"
Run = Callable[..., tuple[int, str, str]]
Edit = Callable[..., None]


@pytest.fixture
def bare(repository: Path) -> Path:
    """A repository without a policy."""
    (repository / "tilewise.toml").unlink()
    return repository


def test_a_first_policy_is_written_and_judges_what_is_there(bare: Path, run: Run, edit: Edit) -> None:
    code, out, _ = run("check", "--init")
    assert code == 0 and out.startswith(
        "tilewise.toml: 1 configuration (configs/*.json) on h100-sxm5-80gb: train, prefill, decode"
    )
    jsonschema.validate(tomllib.loads((bare / "tilewise.toml").read_text()), schema())
    code, out, _ = run("check")
    assert code == 0 and "[max_left_on_table 5 %]  pass" in out
    edit("10240", "10241")
    assert run("check")[0] == 1  # without any base
    code, _, err = run("check", "--init")
    assert code == 2 and "is there already" in err


def test_a_model_too_large_for_one_gpu_is_judged_on_as_many_as_hold_it(bare: Path, run: Run) -> None:
    shutil.copy(ROOT / "examples" / "llama-3-8b.json", bare / CONFIG)
    config = json.loads((bare / CONFIG).read_text())
    (bare / CONFIG).write_text(json.dumps(config | {"num_hidden_layers": 200}))
    assert run("check", "--init")[0] == 0
    policy = read((bare / "tilewise.toml").read_text())
    assert {work.tensor_parallel for work in policy.workloads.values()} == {2}


def test_a_folder_without_configurations_is_exit_code_5(bare: Path, run: Run) -> None:
    (bare / CONFIG).write_text("{}")
    code, _, err = run("check", "--init")
    assert code == 5 and "no config.json of a known family" in err and not (bare / "tilewise.toml").exists()


def test_patterns_match_what_was_found_and_nothing_else() -> None:
    def of(found: str, others: str = "") -> list[str]:
        paths = [Path(name) for name in found.split()]
        return patterns(paths, [*paths, *map(Path, others.split())])

    assert of("a/config.json b/c/config.json") == ["**/config.json"]
    assert of("a/config.json b/config.json", "c/config.json") == ["a/*.json", "b/*.json"]
    assert of("a/x.json a/y.json") == ["a/*.json"]
    assert of("a/x.json", "a/package.json") == ["a/x.json"]
    assert of("x.json", "tilewise.toml") == ["*.json"]


def test_the_published_schema_is_what_the_policy_reads(run: Run) -> None:
    code, out, _ = run("check", "--schema")
    assert code == 0 and out == (ROOT / "docs" / "tilewise.schema.json").read_text(), (
        "tilewise check --schema -o docs/..."
    )
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(tomllib.loads((ROOT / "examples" / "gate" / "tilewise.toml").read_text()), schema())


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "unknown key": lambda check: check.update(gpu="h100-sxm5-80gb"),
    "unknown metric": lambda check: check["budget"][0].update(metric="speed"),
    "no limit": lambda check: check["budget"][0].pop("max_regression"),
    "no reason": lambda check: check["allow"][0].pop("reason"),
    "unknown phase": lambda check: check["workload"][0].update(phase="serve"),
    "size of 0": lambda check: check["workload"][0].update(batch=0),
    "unknown rule": lambda check: check.update(rules={"TW999": "off"}),
}


@pytest.mark.parametrize("spoil", BROKEN.values(), ids=BROKEN)
def test_the_schema_refuses_what_the_policy_refuses(spoil: Callable[[dict[str, Any]], object]) -> None:
    policy = tomllib.loads((ROOT / "examples" / "gate" / "tilewise.toml").read_text())
    spoil(policy["check"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(policy, schema())
