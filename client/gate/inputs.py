"""What a check is asked about: the policy, the configurations it names, and what they were before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tilewise.client.gate.git import Repository
from tilewise.client.gate.saved import predictions
from tilewise.client.question import read_text
from tilewise.hwdb.errors import InvalidInput, NotFound
from tilewise.hwdb.record import Record
from tilewise.server.gate.patterns import matches
from tilewise.server.gate.policy import read as read_policy
from tilewise.v1.check_pb2 import CheckItem, CheckRequest

POLICY = "tilewise.toml"


class NothingToCheck(NotFound):
    """No configuration matches the policy: a gate that checked nothing is not green."""


class Place(Record):
    """Where paths start: the repository's top folder; outside of one the working directory, or the policy's folder."""

    root: Path
    policy: Path
    repository: Repository | None

    @classmethod
    def of(cls, policy: str | None) -> Place:
        path = Path(policy).absolute() if policy else _nearest(Path.cwd())
        repository = Repository.around(path.parent)
        here, folder = Path.cwd().resolve(), path.parent.resolve()
        root = repository.top if repository is not None else here if folder.is_relative_to(here) else folder
        return cls(root, path.parent.resolve() / path.name, repository)

    def relative(self, path: Path) -> str:
        """A path as reports show it. Raises InvalidInput for one that lies, or leads, outside."""
        inside = path.parent.resolve() / path.name
        if not inside.is_relative_to(self.root) or not path.resolve().is_relative_to(self.root):
            how = "is a link that leaves" if path.is_symlink() else "lies outside of"
            raise InvalidInput(f"{path} {how} {self.root}", reason="OUTSIDE", field="config")
        return inside.relative_to(self.root).as_posix()


def _nearest(folder: Path) -> Path:
    """The policy in a folder or the nearest one above it."""
    for place in (folder, *folder.parents):
        if (place / POLICY).is_file():
            return place / POLICY
    message = f"no {POLICY} in {folder} or above it; `tilewise check --policy FILE` names one"
    raise InvalidInput(message, reason="BAD_POLICY", field="policy")


def request(
    place: Place, configs: Sequence[str], base: str | None, base_file: str | None, day: str, calibration: str
) -> CheckRequest:
    """Everything read, in the order of the paths; day: unset: today (UTC). Raises NothingToCheck, InvalidInput, TooLarge."""
    policy = read_text(str(place.policy))
    shown = place.relative(place.policy)
    patterns = [budget.config for budget in read_policy(policy, shown).budgets]
    heads = {place.relative(path): path for path in _configs(place, configs, patterns)}
    if not any(matches(path, each, shown) for path in heads for each in patterns):
        raise NothingToCheck(
            f"no configuration matches the patterns of {shown}: {', '.join(dict.fromkeys(patterns))}",
            reason="NOTHING_TO_CHECK", field="config",
        )  # fmt: skip
    today = datetime.now(UTC).date().isoformat()
    asked = CheckRequest(
        policy_toml=policy, policy_path=shown, date=day or today, calibration=calibration, all_items=not configs
    )
    asked.items.extend(CheckItem(path=path, head=read_text(str(file))) for path, file in sorted(heads.items()))
    if base is not None:
        _from_git(asked, place, base, shown)
    if base_file is not None:
        _from_file(asked, place, Path(base_file))
    return asked


def _configs(place: Place, configs: Sequence[str], patterns: Sequence[str]) -> list[Path]:
    """The files named, or all that the policy's patterns find."""
    if configs:
        return [Path(name).absolute() for name in configs]
    return [path for pattern in patterns for path in place.policy.parent.glob(pattern) if path.is_file()]


def _from_git(asked: CheckRequest, place: Place, base: str, policy: str) -> None:
    """What each file was in a commit; a file under a new name is looked up under its old one."""
    if place.repository is None:
        message = f"{place.root} is no git repository; --base-file compares with a file or a folder"
        raise InvalidInput(message, reason="NO_GIT", field="base")
    commit = place.repository.commit(base)
    texts = place.repository.texts(commit, [policy, *(item.path for item in asked.items)])
    if any(item.path not in texts for item in asked.items):
        old = place.repository.renamed(commit)
        moved = {item.path: old[item.path] for item in asked.items if item.path in old}
        found = place.repository.texts(commit, moved.values())
        texts |= {new: found[name] for new, name in moved.items() if name in found}
    for item in asked.items:
        if item.path in texts:
            item.base = texts[item.path]
    if texts.get(policy) != asked.policy_toml:
        asked.base_policy_toml = texts.get(policy, "")


def _from_file(asked: CheckRequest, place: Place, base: Path) -> None:
    """What each file was in a folder of the same layout, or what the only file was in another file or saved prediction."""
    if base.is_dir():
        for item in asked.items:
            before = base / Path(place.root / item.path).relative_to(place.policy.parent)
            if before.is_file():
                item.base = read_text(str(before))
        if not any(item.HasField("base") for item in asked.items):
            message = f"--base-file {base} has none of the configurations that are checked: {_some(asked)}"
            raise InvalidInput(message, reason="BAD_BASE", field="base_file")
        return
    if len(asked.items) != 1:
        message = (
            f"--base-file {base} is one file, but {len(asked.items)} configurations are checked: name one, or a folder"
        )
        raise InvalidInput(message, reason="BAD_BASE", field="base_file")
    text = read_text(str(base))
    known = predictions(text, str(base))
    if known is None:
        asked.items[0].base = text
    else:
        asked.items[0].base_predictions.extend(known)


def _some(asked: CheckRequest) -> str:
    """The first paths, for a message."""
    paths = [item.path for item in asked.items]
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
