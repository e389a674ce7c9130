"""The tables of docs/advice.md are those of a run."""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))


def test_the_advice_page_and_the_readme_show_what_was_measured_and_published() -> None:
    script = import_module("update_advice")
    texts = [page.read_text(encoding="utf-8") for page in script.PAGES]
    assert all(any(f"<!-- {name}:begin -->" in text for text in texts) for name in script.blocks())
    for text in texts:
        assert script.updated(text) == text, "run python scripts/update_advice.py"
