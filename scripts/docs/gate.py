"""The case of docs/gate.md: the edit of examples/gate in a repository of its own, judged by `tilewise check`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "configs/gpt-neox-2.7b.json"
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")


def case() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "repository"
        shutil.copytree(ROOT / "examples" / "gate", folder)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base")):
            subprocess.run((*GIT, *words), cwd=folder, check=True)
        path = folder / CONFIG
        path.write_text(path.read_text().replace("50304", "50257"))
        command = (sys.executable, "-m", "tilewise", "check", "--base", "main")
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if said.returncode != 1:
        raise SystemExit(f"exit code {said.returncode}, not 1: {said.stderr}")
    return f"```console\n$ sed -i s/50304/50257/ {CONFIG}\n$ tilewise check --base main\n{said.stdout}```"
