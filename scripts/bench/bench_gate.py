"""How long `tilewise check` takes, process start included: best of several, as a table in markdown (docs/gate.md shows it).

python scripts/bench/bench_gate.py
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = json.loads((ROOT / "examples" / "llama-3-8b.json").read_text(encoding="utf-8"))
POLICY = """
[check]
gpus = ["h100-sxm5-80gb"]
[[check.workload]]
name = "train"
phase = "train"
sequence = 4096
[[check.budget]]
config = "configs/*.json"
metric = "time_s"
max_regression = "2 %"
"""
REPEATS = 5
CHECK = [sys.executable, "-m", "tilewise", "check", "--base", "HEAD", "-o", "out.txt"]


def repository(folder: Path, configs: int, changed: int) -> None:
    """A repository of configurations of different shapes, the first `changed` of them edited since the last commit."""
    (folder / "configs").mkdir()
    (folder / "tilewise.toml").write_text(POLICY, encoding="utf-8")
    for at in range(configs):
        write(folder, at, intermediate_size=8192 + 64 * at)
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "base"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    for at in range(changed):
        write(folder, at, intermediate_size=8192 + 64 * at + 8 * (1 + at % 7))


def write(folder: Path, at: int, **sizes: int) -> None:
    (folder / "configs" / f"{at:04}.json").write_text(json.dumps({**EXAMPLE, **sizes}, indent=1), encoding="utf-8")


def seconds(configs: int, changed: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        repository(Path(name), configs, changed)
        return min(once(Path(name)) for _ in range(REPEATS))


def once(folder: Path) -> float:
    start = time.perf_counter()
    subprocess.run(CHECK, cwd=folder, check=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    print("| configurations | of these changed | wall time |", "|--:|--:|--:|", sep="\n")
    for configs, changed in ((1, 0), (1, 1), (200, 1), (200, 200)):
        print(f"| {configs} | {changed} | {seconds(configs, changed):.2f} s |", flush=True)
