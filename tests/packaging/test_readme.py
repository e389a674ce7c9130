"""What the README shows is what a run gives, and what it promises exists."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tilewise.client.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
sys.path.append(str(ROOT / "scripts"))


def test_every_transcript_is_what_a_run_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWISE_GPU", "TILEWISE_FORMAT", "TILEWISE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    script = import_module("update_readme")
    assert len(script.TRANSCRIPT.findall(README)) >= 4
    for page in script.PAGES:
        assert script.updated(page.read_text()) == page.read_text()


def test_the_python_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert done.stdout == "80000000000.0\n"


def test_the_two_commands_are_those_that_tests_and_ci_run() -> None:
    install, test = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    assert install.startswith("pip install . && tilewise predict examples/llama-3-8b.json ")
    setup, _, command = test.partition(" && ")
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    assert setup.replace("pip install", "pip install --quiet") in steps
    assert command in steps


def test_every_command_and_every_page_is_mentioned() -> None:
    for name in COMMANDS:
        assert f"tilewise {name}" in README
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
