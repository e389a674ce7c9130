"""What is installed is what was looked at: bounds above known advisories, a lock with hashes, a bill of materials, actions by commit."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "deploy" / "requirements.lock").read_text()
LOCKED = dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", LOCK, re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FIXED = {"protobuf": (6, 33, 5)}  # CVE-2026-0994: nested Any without end in json_format


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def bounds(requirements: list[str]) -> dict[str, str]:
    return {
        found[1].lower(): found[2] for each in requirements if (found := re.match(r"([\w-]+)[^>]*>=([\d.]+)", each))
    }


def test_lower_bounds_lie_above_what_advisories_name() -> None:
    found = bounds(PROJECT["dependencies"])
    for name, fixed in FIXED.items():
        assert numbers(found[name]) >= fixed and numbers(LOCKED[name]) >= fixed


def test_the_lock_has_every_dependency_of_the_server_within_its_bounds_and_hashes_of_each() -> None:
    extras = PROJECT["optional-dependencies"]
    for name, lowest in bounds([*PROJECT["dependencies"], *extras["service"], *extras["otel"]]).items():
        assert numbers(LOCKED[name]) >= numbers(lowest), "run scripts/lock.sh"
    entries = re.split(r"^(?=[a-z0-9._-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(LOCKED) and all("--hash=sha256:" in entry for entry in entries)


def test_the_bill_of_materials_lists_what_the_lock_does() -> None:
    bill = json.loads((ROOT / "deploy" / "sbom.cdx.json").read_text())
    assert {each["name"]: each["version"] for each in bill["components"]} == LOCKED


def test_actions_are_named_by_commit() -> None:
    steps = yaml.safe_load((ROOT / "examples" / "gate" / "github-workflow.yml").read_text())["jobs"]["check"]["steps"]
    others = [step["uses"] for step in steps if "uses" in step and not step["uses"].startswith("OWNER/")]
    assert others and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each) for each in others)


@pytest.mark.parametrize(
    "base", ["--upload-pack=touch pwned", "-q", "+refs/heads/*:refs/heads/*", "a b", "", "$(touch pwned)"]
)
def test_the_base_of_the_action_is_no_option_and_no_refspec(tmp_path: Path, base: str) -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    (script,) = (step["run"] for step in steps if step["name"] == "Fetch the base")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", str(ROOT)], check=True)
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        check=False,
        cwd=tmp_path,
        env={"BASE": base, "PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
    )
    assert done.returncode == 2 and b"the base is no commit" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {".git"}
