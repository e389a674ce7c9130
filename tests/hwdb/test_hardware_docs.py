"""docs/hardware.md says what the SKU files say."""

import importlib.util
from pathlib import Path
from types import ModuleType

from tilewise.hwdb.database import Database

ROOT = Path(__file__).resolve().parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_hardware_docs", ROOT / "scripts" / "write_hardware_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_hardware_page_is_current() -> None:
    assert (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8") == script().page()


def test_the_hardware_page_names_every_sku_and_explains_every_mark() -> None:
    page = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in Database.packaged().skus())
    assert all(f"\n| {mark} | " in page for mark in "SKDR3")
