"""Whether an advisory affects an installed version, by the rules of the OSV schema."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
check = import_module("check_advisories")
GRPC = {"ecosystem": "PyPI", "name": "GrpcIO"}


def advisory(events: list[dict[str, str]], versions: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": events}]
    return {"id": "PYSEC-1", "affected": [{"package": GRPC, "ranges": ranges, "versions": list(versions)}], **more}


@pytest.mark.parametrize(
    "events, version, affected",
    [
        ([{"introduced": "0"}, {"fixed": "1.3.0"}], "1.2.9", True),
        ([{"introduced": "0"}, {"fixed": "1.3.0"}], "1.3.0", False),
        ([{"introduced": "0"}, {"fixed": "1.3.0"}], "1.10.0", False),
        ([{"introduced": "0"}, {"fixed": "1.3.0"}], "1.3.0rc1", True),
        ([{"introduced": "1.5"}], "1.4", False),
        ([{"introduced": "1.5"}], "9.9", True),
        ([{"introduced": "1.5"}, {"last_affected": "1.7"}], "1.7", True),
        ([{"introduced": "1.5"}, {"last_affected": "1.7"}], "1.7.1", False),
        ([{"introduced": "2.0"}, {"fixed": "2.4"}, {"introduced": "1.0"}, {"fixed": "1.9"}], "1.95", False),
        ([{"introduced": "2.0"}, {"fixed": "2.4"}, {"introduced": "1.0"}, {"fixed": "1.9"}], "2.3", True),
        ([], "1.0", False),
    ],
)
def test_the_last_event_at_or_below_a_version_decides(
    events: list[dict[str, str]], version: str, affected: bool
) -> None:
    assert check.affects(advisory(events)["affected"][0], Version(version)) is affected


def test_a_version_that_is_listed_is_affected_whatever_the_ranges_say() -> None:
    assert check.affects(advisory([], ("1.0", "no version"))["affected"][0], Version("1.0.0"))


def test_ranges_of_commits_say_nothing_about_versions() -> None:
    entry = {"package": GRPC, "ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}
    assert not check.affects(entry, Version("1.0"))


def run(folder: Path, freeze: str) -> subprocess.CompletedProcess[str]:
    (folder / "installed.txt").write_text(freeze)
    command = [sys.executable, str(ROOT / "scripts" / "check_advisories.py"), "installed.txt", "advisories"]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)


def test_a_clone_is_searched_by_the_names_that_pypi_takes_for_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "advisories" / "vulns" / "grpcio"
    folder.mkdir(parents=True)
    content = advisory([{"introduced": "0"}, {"fixed": "1.3.0"}], modified="2024-01-02")
    (folder / "PYSEC-1.yaml").write_text(yaml.safe_dump(content))
    (folder / "PYSEC-2.yaml").write_text(yaml.safe_dump({**content, "id": "PYSEC-2", "withdrawn": "2024-01-03"}))
    found = run(tmp_path, "grpcio==1.2\nclick==8.1\n")
    assert found.returncode == 1 and "grpcio 1.2: PYSEC-1 of 1 advisories" in found.stdout
    good = run(tmp_path, "grpcio==1.3\n")
    assert good.returncode == 0 and "the newest changed 2024-01-02" in good.stdout


def test_a_folder_without_advisories_is_no_good_news(tmp_path: Path) -> None:
    (tmp_path / "advisories").mkdir()
    assert run(tmp_path, "grpcio==1.2\n").returncode == 1
