"""The GitHub action, the GitLab job and the pre-commit hook, each really run on the example: once green, once red."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "configs/gpt-neox-2.7b.json"
SIZES = {"green": "50432", "red": "50257"}  # of the vocabulary, 50304 before
BIN = Path(sys.executable).parent
# .ci/run installs the action and the hook as their users do, over the network; else this very environment stands for them
INSTALL = "TILEWISE_INSTALL" in os.environ
COLOURS = pytest.mark.parametrize("colour", SIZES)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A shallow clone of a repository whose last commit is the base, as CI checks one out."""
    origin = tmp_path / "origin"
    shutil.copytree(ROOT / "examples" / "gate", origin)
    git(origin, "init", "-q", "-b", "main")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "base")
    git(origin, "commit", "-qm", "topic", "--allow-empty")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "clone")
    return tmp_path / "clone"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def base_of(clone: Path) -> str:
    return git(clone.parent / "origin", "rev-parse", "HEAD~1")


def paint(clone: Path, colour: str) -> None:
    path = clone / CONFIG
    path.write_text(path.read_text().replace("50304", SIZES[colour]))


def environment(clone: Path, **more: str) -> dict[str, str]:
    """What a runner sets; its temporary folder holds this environment in place of the one that the action installs."""
    runner = clone.parent / "runner"
    runner.mkdir(exist_ok=True)
    if not INSTALL and not (runner / "tilewise").exists():
        (runner / "tilewise").mkdir()
        (runner / "tilewise" / "bin").symlink_to(BIN)
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    own = {"PATH": f"{BIN}:{os.environ['PATH']}", "RUNNER_TEMP": str(runner), "GITHUB_OUTPUT": str(runner / "output")}
    return kept | own | {"GITHUB_STEP_SUMMARY": str(runner / "summary")} | more


def valued(text: str, values: dict[str, str]) -> str:
    """`${{ inputs.x }}` and `${{ github.x }}` as the runner replaces them."""
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda match: values[match[1]], text)


def step(clone: Path, step: dict[str, Any], values: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """One step of the composite action, run as a runner runs `shell: bash`."""
    env = environment(clone, **{name: valued(value, values) for name, value in step.get("env", {}).items()})
    folder = clone / valued(step.get("working-directory", "."), values)
    assert "${{" not in step["run"], "a value in a script is a script: it has to come through the environment"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


@COLOURS
def test_the_github_action_annotates_summarises_and_decides(clone: Path, colour: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {f"inputs.{name}": str(given["default"]) for name, given in action["inputs"].items()}
    values = inputs | {"inputs.base": base_of(clone), "github.action_path": str(ROOT)}
    paint(clone, colour)
    install, fetch, check = action["runs"]["steps"]
    for before in [install, fetch] if INSTALL else [fetch]:
        assert step(clone, before, values).returncode == 0
    done = step(clone, check, values)
    assert done.returncode == (colour == "red"), done.stderr
    outputs = dict(line.split("=", 1) for line in (clone.parent / "runner" / "output").read_text().splitlines())
    assert set(outputs) == set(action["outputs"]) and outputs["exit-code"] == str(done.returncode)
    assert all(Path(outputs[form]).stat().st_size for form in ("markdown", "sarif", "junit"))
    assert ("::error file=configs/gpt-neox-2.7b.json,line=8,col=3" in done.stdout) == (colour == "red")
    assert (clone.parent / "runner" / "summary").read_text().startswith("<!-- tilewise-check:")


@COLOURS
def test_the_gitlab_job_writes_its_reports_and_decides(clone: Path, colour: str) -> None:
    job = yaml.safe_load((ROOT / "examples" / "gate" / "gitlab-ci.yml").read_text())["tilewise"]
    install, *script = job["script"]
    assert install.startswith("pip install")
    paint(clone, colour)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(script)], cwd=clone, capture_output=True, text=True, check=False,
        env=environment(clone, CI_MERGE_REQUEST_DIFF_BASE_SHA=base_of(clone)),
    )  # fmt: skip
    assert done.returncode == (colour == "red"), done.stderr
    assert all((clone / name).stat().st_size for name in job["artifacts"]["reports"].values())


@COLOURS
def test_the_pre_commit_hook_stops_a_commit_that_costs_speed(clone: Path, colour: str) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    local = {"repos": [{"repo": "local", "hooks": [hook | {"language": "system"}]}]}
    (clone / ".pre-commit-config.yaml").write_text(yaml.safe_dump(local))
    paint(clone, colour)
    git(clone, "add", "-A")
    run = ["-m", "pre_commit", *(["try-repo", str(ROOT), hook["id"]] if INSTALL else ["run"]), "--color=never"]
    done = subprocess.run(
        [sys.executable, *run], cwd=clone, env=environment(clone), capture_output=True, text=True, check=False
    )
    assert done.returncode == (colour == "red"), done.stdout + done.stderr
    assert ("TW101 regression" in done.stdout) == (colour == "red")


def test_the_workflow_of_the_example_uses_what_the_action_gives() -> None:
    workflow = (ROOT / "examples" / "gate" / "github-workflow.yml").read_text()
    outputs = yaml.safe_load((ROOT / "action.yml").read_text())["outputs"]
    assert set(re.findall(r"steps\.tilewise\.outputs\.([\w-]+)", workflow)) <= set(outputs)
    yaml.safe_load(workflow)


def test_every_action_is_pinned_by_the_hash_of_a_commit() -> None:
    workflow = (ROOT / "examples" / "gate" / "github-workflow.yml").read_text()
    used = re.findall(r"uses: ([\w./-]+)@([\w.]+)", workflow)
    assert len(used) == 3 and all(len(ref) == 40 or (name, ref) == ("OWNER/tilewise", "COMMIT") for name, ref in used)


@pytest.mark.parametrize("base", ["--upload-pack=touch injected", "-c", "main; touch injected", "", "+main:main"])
def test_a_base_that_is_no_commit_ends_the_action_and_runs_nothing(clone: Path, base: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {f"inputs.{name}": str(given["default"]) for name, given in action["inputs"].items()}
    done = step(clone, action["runs"]["steps"][1], inputs | {"inputs.base": base, "github.action_path": str(ROOT)})
    assert done.returncode == 2 and "is no commit" in done.stdout
    assert not list(clone.rglob("injected"))


def test_the_action_imports_no_module_of_the_checkout(clone: Path) -> None:
    """`python -m` would look in the working directory first, which a pull request fills."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    for name in ("venv", "shutil"):
        (clone / f"{name}.py").write_text("open('injected', 'w')")
    install = action["runs"]["steps"][0]
    (line,) = (line for line in install["run"].splitlines() if "pip" not in line)  # which would need the network
    done = step(clone, install | {"run": line.replace("/tilewise", "/another")}, {"github.action_path": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert not (clone / "injected").exists()


@pytest.mark.parametrize("name", ["policy", "server"])
def test_an_input_that_looks_like_an_option_is_a_value(clone: Path, name: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {f"inputs.{each}": str(given["default"]) for each, given in action["inputs"].items()}
    values = inputs | {"inputs.base": base_of(clone), f"inputs.{name}": "--exit-zero", "github.action_path": str(ROOT)}
    git(clone, "fetch", "-q", "--depth=1", "origin", base_of(clone))
    paint(clone, "red")
    install, _, check = action["runs"]["steps"]
    assert not INSTALL or step(clone, install, values).returncode == 0
    assert step(clone, check, values).returncode in (2, 3)
