"""A git repository with the example policy and its configuration, as a CI job finds it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewise.client.cli import main

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "configs/gpt-neox-2.7b.json"
Run = Callable[..., tuple[int, str, str]]


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a clone with one commit."""
    folder = tmp_path / "repository"
    shutil.copytree(ROOT / "examples" / "gate", folder)
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-qm", "base")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return folder


@pytest.fixture
def git(repository: Path) -> Callable[..., str]:
    """git in the repository."""
    return lambda *arguments: _git(repository, *arguments)


@pytest.fixture
def edit(repository: Path) -> Callable[..., None]:
    """Replace a text in a file of the repository that must be there."""

    def replace(old: str, new: str, path: str = CONFIG) -> None:
        text = (repository / path).read_text(encoding="utf-8")
        assert old in text
        (repository / path).write_text(text.replace(old, new), encoding="utf-8")

    return replace


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Exit code, standard output and standard error of a command run in this process."""

    def tilewise(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return int(end.value.code or 0), out, err

    return tilewise
