"""How a client shows who it is and checks who the server is, from the environment.

TILEWISE_TOKEN         bearer token, or
TILEWISE_TOKEN_FILE    the file that holds it, read anew for every connection, so that it can be rotated
                       neither, and a server of this user's own on this machine: the token that it left in a file
TILEWISE_CA            PEM of the authority that signed the server's certificate; unset: those of the system
TILEWISE_CLIENT_CERT   PEM of the client's certificate chain, where the server demands one (mTLS)
TILEWISE_CLIENT_KEY    its key
TILEWISE_INSECURE      1: speak without TLS to a server that is not on the loopback
"""

from __future__ import annotations

import os
from pathlib import Path

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.record import Record

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
YES = ("1", "true", "yes", "on")


class Access(Record):
    """token: "" for none; secure: whether to speak TLS; the others: PEM, None where there is none."""

    token: str = ""
    secure: bool = True
    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = None


def access(server: str, token: str | None = None, secure: bool | None = None) -> Access:
    """What the environment says about reaching "host:port"; token and secure overrule it.

    Raises InvalidInput (NO_SUCH_FILE) where a file that the environment names cannot be read.
    """
    if secure is None:
        plain = os.environ.get("TILEWISE_INSECURE", "").lower() in YES
        secure = not (on_loopback(server) or plain) or "TILEWISE_CA" in os.environ
    if token is None:
        token = os.environ.get("TILEWISE_TOKEN", "") or (_content("TILEWISE_TOKEN_FILE") or b"").decode().strip()
        token = token or _local(server)
    pem = (_content(name) for name in ("TILEWISE_CA", "TILEWISE_CLIENT_CERT", "TILEWISE_CLIENT_KEY"))
    return Access(token, secure, *pem)


def on_loopback(server: str) -> bool:
    return server.startswith("unix:") or server.rpartition(":")[0] in LOOPBACK


def _local(server: str) -> str:
    """The token of this user's own server on this machine; "" where there is none."""
    port = server.rpartition(":")[2]
    if server.startswith("unix:") or not (on_loopback(server) and port.isdecimal()):
        return ""
    from tilewise.server.service.identity import local

    return local.known(int(port))


def _content(variable: str) -> bytes | None:
    """Of the file that a variable of the environment names; None where it names none."""
    name = os.environ.get(variable, "")
    if not name:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        message = f"{variable} names {name}: {(error.strerror or str(error)).lower()}"
        raise InvalidInput(message, reason="NO_SUCH_FILE") from error
