"""The accuracy figures of the README and of docs/accuracy.md are those of a run."""

import re
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README, PAGE = (ROOT / "README.md").read_text(), (ROOT / "docs" / "accuracy.md").read_text()
sys.path.append(str(ROOT / "scripts"))


def test_the_readme_shows_what_the_accuracy_page_says() -> None:
    (block,) = re.findall(r"<!-- accuracy:begin -->\n(.*?)<!-- accuracy:end -->", README, re.DOTALL)
    assert block.strip() and block.strip().replace("](tests/", "](../tests/") in PAGE
    assert block.count("\n| ") >= 10


def test_both_are_what_validate_gives_over_the_measured_truth(shared: Path) -> None:
    script = import_module("update_accuracy")
    found = script.validations(shared)
    assert script.page(found) == PAGE, "run python scripts/update_accuracy.py"
    assert script.readme(README, found) == README
