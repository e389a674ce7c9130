"""The wheel holds the tracked files but for measurements, and works anywhere in a clean environment; so does an editable install."""

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]
EXAMPLE = ROOT / "examples" / "llama-3-8b.json"


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, run with nothing of this process's paths."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files, so that builds leave nothing in the working tree."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("source")
    for name in tracked():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as an index would have it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, source, cwd=folder)
    return next(folder.glob("*.whl"))


def tracked() -> list[str]:
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def packaged_name(path: str) -> str | None:
    """Where a tracked file lies in the wheel: hwdb/gpu.py is tilewise/hwdb/gpu.py; None where it is not shipped."""
    if "/measurements/" in path:  # fitting alone reads them
        return None
    for package, folder in sorted(FOLDERS.items(), key=lambda item: -len(item[1])):
        if path.startswith(f"{folder}/") and not path.endswith((".md", ".gitkeep")):
            return f"{package.replace('.', '/')}/{path.removeprefix(f'{folder}/')}"
    return None


def test_the_wheel_holds_the_tracked_files_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {name for path in tracked() if (name := packaged_name(path))}


def test_the_source_distribution_holds_the_measurements(wheel: Path) -> None:
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames() if "/measurements/" in name}
    assert held == {path for path in tracked() if "/measurements/" in path} != set()


def test_the_version_is_written_once(wheel: Path) -> None:
    version = PROJECT["project"]["version"]
    assert wheel.name.startswith(f"tilewise-{version}-")
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{version}] - 20" in changelog


@pytest.mark.parametrize("form", ["wheel", "editable"])
def test_a_clean_environment_predicts_from_another_folder(
    form: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    installed = ["-e", request.getfixturevalue("source")] if form == "editable" else [request.getfixturevalue("wheel")]
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *installed, cwd=tmp_path)
    command = python.parent / "tilewise"
    assert run(python, "-m", "tilewise", "--version", cwd=tmp_path) == run(command, "--version", cwd=tmp_path)
    assert run(command, "--version", cwd=tmp_path).startswith(f"tilewise {PROJECT['project']['version']}, database ")
    arguments = ("--gpu", "h100-sxm5-80gb", "--phase", "prefill", "--seq", "2048", "--format", "json")
    answer = json.loads(run(command, "predict", EXAMPLE, *arguments, cwd=tmp_path))
    assert answer["architecture"]["parameter_count"] == 8_030_261_248
    assert 0 < answer["step"]["time_low_s"] < answer["step"]["time_s"] < answer["step"]["time_high_s"]


def test_a_clone_answers_without_an_install(tmp_path: Path) -> None:
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "proto")}
    command = [sys.executable, "-m", "tilewise", "gpus", "list"]
    done = subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "h100-sxm5-80gb" in done.stdout, done.stderr


def test_type_checkers_and_editors_find_every_room_of_a_clone() -> None:
    proto = ROOT / "proto"
    assert PROJECT["tool"]["mypy"]["mypy_path"] == "proto" and PROJECT["tool"]["pyright"]["extraPaths"] == ["proto"]
    for package, folder in FOLDERS.items():
        assert (proto / package.replace(".", "/")).resolve() == ROOT / folder, f"{package} is no link to {folder}"
    found = run(sys.executable, "-m", "mypy", "--follow-imports=skip", "-m", "tilewise.hwdb.errors", "-v", cwd=ROOT)
    assert "Success" in found
