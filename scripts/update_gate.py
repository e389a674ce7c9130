"""Writes the case of docs/gate.md anew: the edit of examples/gate in a repository of its own, judged by `tilewise check`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gate.md"
CONFIG = "configs/gpt-neox-2.7b.json"
ASKED = "$ tilewise check --base main\n"
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "repository"
        shutil.copytree(ROOT / "examples" / "gate", folder)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base")):
            subprocess.run((*GIT, *words), cwd=folder, check=True)
        path = folder / CONFIG
        path.write_text(path.read_text().replace("50304", "50257"))
        command = (sys.executable, "-c", "from tilewise.client.cli import main; main()", "check", "--base", "main")
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if said.returncode != 1:
        raise SystemExit(f"exit code {said.returncode}, not 1: {said.stderr}")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(ASKED)
    PAGE.write_text(f"{before}{ASKED}{said.stdout}```{rest.partition('```')[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
