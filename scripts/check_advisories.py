"""Looks installed packages up in a folder of OSV advisories, where no advisory service can be reached.

python scripts/check_advisories.py INSTALLED.txt ADVISORIES    (audit_dependencies.sh --advisories DIR)

INSTALLED.txt: what `pip freeze` prints. ADVISORIES: a clone of github.com/pypa/advisory-database or of github/advisory-database,
or a part of one: every .yaml and .json below it. Exits with 1 where an advisory affects an installed version.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

FIRST = Version("0.dev0")  # "introduced: 0" means from the start


def installed(text: str) -> dict[str, Version]:
    """Versions by canonical name, of lines such as "grpcio==1.85.3". Raises ValueError for any other line."""
    found = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        name, equal, version = line.partition("==")
        if not equal:
            raise ValueError(f"{line!r} is no NAME==VERSION")
        found[canonicalize_name(name)] = Version(version)
    return found


def advisories(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Those that were not withdrawn."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".yaml", ".json"):
            text = path.read_text(encoding="utf-8")
            content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
            if isinstance(content, dict) and "affected" in content and not content.get("withdrawn"):
                yield content


def concerns(advisory: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Its entries about a package of PyPI."""
    about = [(each.get("package", {}), each) for each in advisory["affected"]]
    return [
        each
        for package, each in about
        if package.get("ecosystem") == "PyPI" and canonicalize_name(package.get("name", "")) == name
    ]


def affects(entry: Mapping[str, Any], version: Version) -> bool:
    """Whether an entry lists the version, or one of its ranges holds it (https://ossf.github.io/osv-schema/#evaluation)."""
    listed = map(parsed, map(str, entry.get("versions", ())))
    ranges = (each for each in entry.get("ranges", ()) if each.get("type") != "GIT")
    return version in listed or any(within(each["events"], version) for each in ranges)


def within(events: list[Mapping[str, Any]], version: Version) -> bool:
    """The last event at or below the version decides; one that is still affected counts as such."""
    steps = sorted((parsed(str(at)) or FIRST, kind) for event in events for kind, at in event.items())
    inside = False
    for at, kind in steps:
        if kind == "introduced" and at <= version:
            inside = True
        elif (kind == "fixed" and at <= version) or (kind == "last_affected" and at < version):
            inside = False
    return inside


def parsed(text: str) -> Version | None:
    try:
        return FIRST if text == "0" else Version(text)
    except InvalidVersion:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("installed", type=Path)
    parser.add_argument("advisories", type=Path)
    asked = parser.parse_args()
    have, known = installed(asked.installed.read_text()), list(advisories(asked.advisories))
    found, newest = 0, max((str(each.get("modified", "")) for each in known), default="none")
    for name, version in sorted(have.items()):
        about = [(each, entry) for each in known for entry in concerns(each, name)]
        hits = sorted({each["id"] for each, entry in about if affects(entry, version)})
        found += len(hits)
        looked_at = len({each["id"] for each, _ in about})
        print(f"{name} {version}: {', '.join(hits) or 'none'} of {looked_at} advisories")
    print(f"{found} found; {len(known)} advisories were looked at, the newest changed {newest}")
    sys.exit(1 if found or not known else 0)


if __name__ == "__main__":
    main()
