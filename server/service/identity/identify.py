"""From what a call brings along to its Caller: a bearer token, a client certificate, or neither."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewise.hwdb.errors import Unauthenticated
from tilewise.server.service.identity.caller import Caller, Role
from tilewise.server.service.identity.callers import Callers
from tilewise.server.service.settings import Settings

Metadata = Iterable[tuple[str, str | bytes]]
BEARER = "bearer "
ANY_NAME, DNS_NAMES, COMMON_NAME = "x509_subject_alternative_name", "peer_dns", "x509_common_name"


class Identify:
    """identify(metadata, auth_context, host) -> Caller. host: whose connection it is.

    With a file of callers everybody must be in it. Without one, who can open the server's socket, or brings `local_token` may do everything, as on their own
    machine, and all others may read. local_token: set by a server that only its machine reaches; "": none.
    """

    def __init__(self, settings: Settings) -> None:
        self._callers = Callers(Path(settings.tokens)) if settings.tokens else None
        self._socket = bool(settings.socket)
        self._certificates = bool(settings.tls_client_ca)
        self.local_token = ""

    def __call__(self, metadata: Metadata, auth_context: Callable[[], Mapping[str, Any]], host: str = "") -> Caller:
        """Raises Unauthenticated."""
        if self._callers is None and self._socket:
            return Caller("local", Role.ADMIN)
        token = bearer(metadata)
        if self._callers is None:
            if self.local_token and hmac.compare_digest(token.encode(), self.local_token.encode()):
                return Caller("local", Role.ADMIN)
            return Caller("anonymous", Role.READER, host=host)
        if token:
            return self._callers.by_token(token)
        if self._certificates:
            return self._callers.by_certificate(names(auth_context()))
        raise Unauthenticated("a token is required: authorization: Bearer ...", reason="NO_TOKEN")


def names(certificate: Mapping[str, Any]) -> list[str]:
    """The names of a client certificate by which it is known: its DNS names; its common name where it has no other name at all.

    Names of other kinds (URI, e-mail, address) are not of the form of the file of callers, and a common name beside others counts
    for nothing (RFC 6125, 6.4.4).
    """
    found = certificate.get(DNS_NAMES, ()) if certificate.get(ANY_NAME) else certificate.get(COMMON_NAME, ())
    return [name.decode(errors="replace") for name in found]


def bearer(metadata: Metadata) -> str:
    """The token of the header `authorization`; "" where there is none."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and value[: len(BEARER)].lower() == BEARER:
            return value[len(BEARER) :].strip()
    return ""
