"""Files as a commit has them, read out of git without a checkout."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record

# What a checkout's own configuration would have git run beside the command that was asked for.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


class Repository(Record):
    """A working tree by its top folder."""

    top: Path

    @classmethod
    def around(cls, folder: Path) -> Repository | None:
        """The repository that a folder lies in; None where there is none, or no git."""
        try:
            top = _git(folder, "rev-parse", "--show-toplevel")
        except (InvalidInput, OSError):
            return None
        return cls(Path(top.decode().removesuffix("\n")))

    def commit(self, ref: str) -> str:
        """The hash of a commit; `REF...` is where the branch left REF. Raises InvalidInput (UNKNOWN_REF)."""
        try:
            if ref.endswith("..."):
                return _git(self.top, "merge-base", "--", ref.removesuffix("..."), "HEAD").decode().strip()
            found = _git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        except InvalidInput as error:
            message = f"git knows no commit {ref!r} in {self.top}: a shallow clone has to fetch it first"
            hint = f"git fetch --depth=1 origin {ref.removesuffix('...')}, then --base FETCH_HEAD"
            raise InvalidInput(message, reason="UNKNOWN_REF", field="base", hint=hint) from error
        return found.decode().strip()

    def texts(self, commit: str, paths: Iterable[str]) -> dict[str, str]:
        """The UTF-8 texts of those paths that the commit has; links are followed inside of it."""
        wanted = [path for path in paths if "\n" not in path]
        asked = "".join(f"{commit}:{path}\n" for path in wanted).encode()
        answer = _git(self.top, "cat-file", "--batch", "--follow-symlinks", asked=asked)
        found, at = {}, 0
        for path in wanted:
            end = answer.index(b"\n", at)
            words, at = answer[at:end].rsplit(b" ", 2), end + 1
            if words[-1] == b"missing":
                continue
            size = int(words[-1])
            content, at = answer[at : at + size], at + size + 1
            if words[-2] == b"blob":
                found[path] = content.decode("utf-8-sig", "replace")
        return found

    def renamed(self, commit: str) -> Mapping[str, str]:
        """Old paths by new ones, of files that the working tree has under another name than the commit."""
        listed = _git(
            self.top, "diff", "--no-ext-diff", "--find-renames", "--diff-filter=R", "--name-status", "-z", commit
        )
        fields = listed.decode("utf-8", "surrogateescape").split("\0")
        return {new: old for _, old, new in zip(fields[0::3], fields[1::3], fields[2::3], strict=False)}


def _git(folder: Path, *arguments: str, asked: bytes = b"") -> bytes:
    """What git prints. Raises InvalidInput where it fails or is not installed."""
    try:
        done = subprocess.run([*GIT, "-C", str(folder), *arguments], input=asked, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise InvalidInput("git is not installed; compare with --base-file instead", reason="NO_GIT") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["git failed"]
        raise InvalidInput(f"git {arguments[0]}: {said[0]}", reason="NO_GIT")
    return done.stdout
