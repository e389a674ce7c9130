"""What README.md and docs/*.md show is what a run gives, and what they name exists."""

import os
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tilewise.client.cli import COMMANDS
from tilewise.hwdb.database import Database

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
sys.path.append(str(ROOT / "scripts" / "docs"))
pages = import_module("pages")
MARKED = re.compile(r"<!-- made by: ")


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def wanted(name: str) -> bool:
    """Whether a part is compared here: what takes minutes, or needs tables that are not there, is not."""
    return not pages.slow(name) and (not pages.needs_shared(name) or pages.SHARED.is_dir())


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_every_transcript_and_every_made_part_is_what_a_run_gives(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TILEWISE_")]:
        monkeypatch.delenv(name)
    assert pages.updated(text(page), wanted) == text(page), "run python scripts/docs"


def test_every_mark_names_a_function_and_has_an_end() -> None:
    for page in pages.PAGES:
        named = pages.names(text(page))
        assert len(named) == len(MARKED.findall(text(page))) == text(page).count("<!-- end -->"), page.name
        assert all(callable(pages.maker(name)) for name in named if not pages.slow(name))
        for module, _, function in (name.partition(".") for name in named if pages.slow(name)):
            assert f"\ndef {function}(" in text(ROOT / "scripts" / "research" / f"{module}.py")


def test_the_readme_is_short_and_shows_real_runs() -> None:
    assert len(README.split()) < 1500
    assert len(pages.transcripts.TRANSCRIPT.findall(README)) >= 3


def test_the_two_commands_are_those_that_tests_and_ci_run() -> None:
    install, test = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    assert install.startswith("pip install . && tilewise predict examples/llama-3-8b.json ")
    setup, _, command = test.partition(" && ")
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    assert setup.replace("pip install", "pip install --quiet") in steps
    assert command in steps


def test_every_command_every_page_and_every_script_is_mentioned() -> None:
    for name in COMMANDS:
        assert f"tilewise {name}" in README
    index = text(ROOT / "docs" / "README.md")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index
    scripts = text(ROOT / "scripts" / "README.md")
    for script in (ROOT / "scripts").rglob("*.py"):
        assert script.name == "__main__.py" or script.name in scripts, f"{script.name} has no line in scripts/README.md"


def test_every_link_leads_somewhere() -> None:
    for page in [*pages.PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text(page)):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_script_that_a_text_names_exists() -> None:
    named = re.compile(r"scripts/(?:bench|docs|research|stress)?/?\w+\.(?:py|sh|toml)")
    for folder in ("docs", "hwdb", "server", "client", "calibration", "scripts", "tests/accuracy"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".md", ".py", ".toml", ".sh"):
                for name in named.findall(text(path)):
                    assert (ROOT / name).exists() or f"truth/{name}" in text(path), f"{path.name} names {name}"


def test_the_hardware_page_names_every_sku_and_explains_every_mark() -> None:
    page = text(ROOT / "docs" / "hardware.md")
    assert all(f"`{name}`" in page for name in Database.packaged().skus())
    assert all(f"\n| {mark} | " in page for mark in "SKDR3")
