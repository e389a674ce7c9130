"""The whole path on a CPU: measure, be killed, go on, seal, show, compare. Needs torch."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewise.calibration.suite import plan
from tilewise.calibration.target import CPU
from tilewise.hwdb.calibration import Calibration

pytest.importorskip("torch")
COMMAND = [sys.executable, "-m", "tilewise", "calibrate"]
RUN = [*COMMAND, "run", "--sku", "h100-sxm5-80gb", "--device", "cpu", "--budget", "50s", "--only", "gemm,memory"]


def rows(folder: Path) -> list[tuple[str, ...]]:
    """Keys of all points on disk, torn lines left out."""
    found = []
    for name in ("gemm", "memory"):
        path = folder / "points" / f"{name}.csv"
        if path.exists():
            with path.open(newline="") as stream:
                for row in csv.DictReader(stream):
                    if row["trail"] is not None:
                        key = list(row.values())[: list(row).index("state") + 1]
                        found.append((name, *key))
    return found


def run(output: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, "-o", str(output)], check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration folder, taken in one go."""
    done = run(tmp_path_factory.mktemp("rehearsal"))
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_a_run_killed_three_times_holds_every_point_once(tmp_path: Path) -> None:
    from tilewise.calibration.protocol import Level

    wanted = sum(len(queue.todo) for queue in plan(CPU, Level.TINY, ("gemm", "memory")).queues)
    finished: set[tuple[str, ...]] = set()
    for kill in range(3):
        with subprocess.Popen(
            [*RUN, "-o", str(tmp_path)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            limit = time.monotonic() + 60
            while len(rows(tmp_path)) < 5 * (kill + 1) and process.poll() is None and time.monotonic() < limit:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert finished <= set(rows(tmp_path))
        finished = set(rows(tmp_path))
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert finished <= set(rows(tmp_path))
    failed = len((tmp_path / "points" / "failures.csv").read_text().splitlines()) - 1
    assert len(rows(tmp_path)) == len(set(rows(tmp_path))) == wanted - failed
    sealed = Calibration.open(done.stdout.strip())
    assert sum(len(sealed.measurements(name)["time_us"]) for name in sealed.families()) == wanted - failed


def test_a_rehearsal_is_marked_non_production_for_ever(rehearsal: Path) -> None:
    calibration = Calibration.open(rehearsal)
    assert calibration.production is False
    assert calibration.sku == "cpu"


def test_show_prints_the_card(rehearsal: Path) -> None:
    shown = subprocess.run([*COMMAND, "show", str(rehearsal)], capture_output=True, text=True, check=True).stdout
    assert "NOT PRODUCTION" in shown
    assert "gemm" in shown


def test_a_calibration_compared_with_itself_has_not_changed(rehearsal: Path) -> None:
    command = [*COMMAND, "compare", str(rehearsal), str(rehearsal)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "largest differences" not in text


def test_going_on_with_another_stack_is_refused(tmp_path: Path) -> None:
    (tmp_path / "points").mkdir()
    about = {
        "sku": "cpu",
        "serial": "",
        "stack": {"torch": "1.0"},
        "script": "",
        "level": "tiny",
        "used_s": 0,
        "keys": {},
    }
    (tmp_path / "points" / "run.json").write_text(json.dumps(about))
    refused = run(tmp_path)
    assert refused.returncode == 2
    assert "Choose another --output" in refused.stderr
