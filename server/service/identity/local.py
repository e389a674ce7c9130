"""The token of a server that its own machine alone reaches: a file that its user can read and nobody else, made at each start.

Another user of the machine reaches the port as well, and may read. The command line of the server's user finds the file by the port
and so may do everything. It trusts no file that others could have written, and the server removes its own at the end.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tilewise.server.service.identity.callers import new_token

log = logging.getLogger(__name__)

FOLDER = "tilewise"
OTHERS = 0o077  # bits of a mode that let others in


def place(port: int) -> Path:
    """Where the token of a port lies: in XDG_STATE_HOME, else ~/.local/state. Raises RuntimeError where there is no home."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / FOLDER / f"token-{port}"


def written(port: int, token: str = "") -> str:
    """A token, new unless given, that lies in its file now; "" with a warning where none can be written."""
    token = token or new_token()
    try:
        path = place(port)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}-{os.getpid()}")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w") as stream:
            stream.write(token)
        os.replace(fresh, path)
    except (OSError, RuntimeError) as error:
        log.warning("no token for this machine's command line can be written, so all callers are readers: %s", error)
        return ""
    return token


def known(port: int) -> str:
    """The token of a server of this user on a port of this machine; "" where there is none."""
    try:
        path = place(port)
        about = path.stat()
        mine = about.st_uid == os.getuid() if hasattr(os, "getuid") else True
        return path.read_text(encoding="utf-8") if mine and not (about.st_mode & OTHERS and os.name == "posix") else ""
    except (OSError, RuntimeError, ValueError):
        return ""


def forgotten(port: int, token: str) -> None:
    """Remove a token's file, unless a later server's is there."""
    if token and known(port) == token:
        place(port).unlink(missing_ok=True)
