"""Run Tilewise from a working tree, without installing it: `python3 scripts/run_from_tree.py calibrate run ...`.

The folders of the house are packages of `tilewise` (pyproject.toml, package-dir); here a path entry for each does it.
"""

import importlib.util
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def load(name: str, folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec and spec.loader, folder
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


load("tilewise", ROOT / "proto" / "tilewise")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
sys.modules["tilewise"].__version__ = PROJECT["version"] + "+tree"  # type: ignore[attr-defined]
for room in ("hwdb", "server", "client", "calibration"):
    load(f"tilewise.{room}", ROOT / room)

if __name__ == "__main__":
    from tilewise.client.cli import main

    main()
