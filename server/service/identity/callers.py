"""The file that says who may call, and those whom it names. It is read again when it changes, without a restart.

    [[caller]]
    name = "ci-fleet"                # for the log and the audit
    role = "reader"                  # reader, calibrator or admin
    tenant = "team-a"                # unset: the calibrations that everybody shares
    token_sha256 = "9f86d0..."       # of the token, never the token itself; or, with mTLS,
    certificate = "ci.example.org"   # the common name or a DNS name of a client certificate
    expires = 2027-06-30             # unset: never

Tokens are 256 random bits (`tilewise token`), so a plain SHA-256 cannot be turned round, and looking a hash up in a
dictionary tells a guesser nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import time
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from tilewise.hwdb.errors import InvalidInput, Unauthenticated
from tilewise.hwdb.record import Record
from tilewise.server.service.identity.caller import SHARED, Caller, Role

log = logging.getLogger(__name__)

LOOK_S = 0.5  # between two looks at the file
KEYS = {"name", "role", "tenant", "token_sha256", "certificate", "expires"}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
SHA256 = re.compile(r"[0-9a-f]{64}")
NEVER = float("inf")


class Entry(Record):
    caller: Caller
    expires: float  # seconds since 1970


class Callers:
    """Raises InvalidInput (BAD_TOKENS_FILE) where the file cannot be read at first; later the old entries stay."""

    def __init__(self, path: Path) -> None:
        self._path, self._looked = path, time.monotonic()
        self._seen = _signature(path)
        self._entries = read(path)

    def by_token(self, token: str) -> Caller:
        """Raises Unauthenticated."""
        return self._known(("token", digest(token)), "the token is not known to this server", "UNKNOWN_TOKEN")

    def by_certificate(self, names: Iterable[str]) -> Caller:
        """The caller of a client certificate's names. Raises Unauthenticated."""
        self._look()
        known = next((name for name in names if ("certificate", name) in self._entries), "")
        message = "the client certificate names nobody whom this server knows"
        return self._known(("certificate", known), message, "UNKNOWN_CERTIFICATE")

    def _known(self, key: tuple[str, str], message: str, reason: str) -> Caller:
        self._look()
        entry = self._entries.get(key)
        if entry is None:
            raise Unauthenticated(message, reason=reason)
        if time.time() >= entry.expires:
            raise Unauthenticated(f"the {key[0]} of {entry.caller.name} has expired", reason="TOKEN_EXPIRED")
        return entry.caller

    def _look(self) -> None:
        """Read the file again where it changed. A file that is broken or gone for a moment changes nothing."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        try:
            seen = _signature(self._path)
            if seen != self._seen:
                self._entries, self._seen = read(self._path), seen
                log.info("%s was read again: %d entries", self._path, len(self._entries))
        except InvalidInput as error:
            log.error("the callers of before stay: %s", error.message)


def digest(token: str) -> str:
    """SHA-256 of a token in hexadecimal, as the file holds it."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A token of 256 random bits; its prefix lets scanners for leaked secrets find it."""
    return "tilewise_" + secrets.token_urlsafe(32)


def read(path: Path) -> Mapping[tuple[str, str], Entry]:
    """Entries by ("token", sha256) or ("certificate", name). Raises InvalidInput (BAD_TOKENS_FILE), naming the entry."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _bad(path, (error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise _bad(path, f"no TOML: {error}") from error
    found: dict[tuple[str, str], Entry] = {}
    for number, item in enumerate(content.get("caller", []), 1):
        try:
            key, entry = _entry(item)
        except (KeyError, TypeError, ValueError) as error:
            raise _bad(path, f"caller {number}: {error}") from error
        if key in found:
            raise _bad(path, f"caller {number}: the same {key[0]} stands twice")
        found[key] = entry
    return found


def _entry(item: Mapping[str, Any]) -> tuple[tuple[str, str], Entry]:
    surplus = sorted(set(item) - KEYS)
    if surplus:
        raise ValueError(f"unknown key {surplus[0]!r}; known: {', '.join(sorted(KEYS))}")
    name, tenant, role = item.get("name", ""), item.get("tenant", SHARED), str(item.get("role", ""))
    if not NAME.fullmatch(name) or not (tenant == SHARED or NAME.fullmatch(tenant)):
        raise ValueError(f"name {name!r} and tenant {tenant!r} are letters, digits and ._@-, 64 at most")
    if role.upper() not in Role.__members__:
        raise ValueError(f"role {role!r} must be reader, calibrator or admin")
    kinds = [
        (kind, item[key]) for kind, key in (("token", "token_sha256"), ("certificate", "certificate")) if key in item
    ]
    if len(kinds) != 1 or not (kinds[0][0] == "certificate" or SHA256.fullmatch(kinds[0][1])):
        raise ValueError("either token_sha256 (64 hexadecimal digits) or certificate is needed")
    return kinds[0], Entry(Caller(name, Role[role.upper()], tenant), _moment(item.get("expires")))


def _moment(expires: object) -> float:
    """A TOML date (its first second, UTC) or date with time as seconds since 1970."""
    if expires is None:
        return NEVER
    if isinstance(expires, datetime):
        return expires.timestamp() if expires.tzinfo else expires.replace(tzinfo=UTC).timestamp()
    if isinstance(expires, date):
        return datetime(expires.year, expires.month, expires.day, tzinfo=UTC).timestamp()
    raise ValueError(f"expires {expires!r} must be a date such as 2027-06-30")


def _signature(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _bad(path, (error.strerror or str(error)).lower()) from error
    return found.st_mtime_ns, found.st_ino, found.st_size


def _bad(path: Path, message: str) -> InvalidInput:
    return InvalidInput(f"{path}: {message}", reason="BAD_TOKENS_FILE", field="tokens")
