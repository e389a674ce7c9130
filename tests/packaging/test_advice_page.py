"""The tables of docs/advice.md are those of a run."""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))


def test_the_advice_page_shows_what_was_measured_and_published() -> None:
    page = (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")
    script = import_module("update_advice")
    assert all(f"<!-- {name}:begin -->" in page for name in script.blocks())
    assert script.updated(page) == page, "run python scripts/update_advice.py"
