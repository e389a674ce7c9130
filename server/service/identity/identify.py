"""From what a call brings along to its Caller: a bearer token, a client certificate, or neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewise.hwdb.errors import Unauthenticated
from tilewise.server.service.identity.caller import Caller, Role
from tilewise.server.service.identity.callers import Callers
from tilewise.server.service.settings import Settings

Metadata = Iterable[tuple[str, str | bytes]]
BEARER = "bearer "
CERTIFICATE_NAMES = ("x509_common_name", "x509_subject_alternative_name")


class Identify:
    """identify(metadata, auth_context, host) -> Caller. host: whose connection it is.

    With a file of callers everybody must be in it. Without one, whoever reaches a loopback address may do everything, as
    on their own machine; whoever comes from elsewhere may read.
    """

    def __init__(self, settings: Settings) -> None:
        self._callers = Callers(Path(settings.tokens)) if settings.tokens else None
        self._certificates = bool(settings.tls_client_ca)
        self._stranger = Caller("anonymous", Role.ADMIN if settings.loopback else Role.READER)

    def __call__(self, metadata: Metadata, auth_context: Callable[[], Mapping[str, Any]], host: str = "") -> Caller:
        """Raises Unauthenticated."""
        if self._callers is None:
            return replace(self._stranger, host=host)
        token = bearer(metadata)
        if token:
            return self._callers.by_token(token)
        if self._certificates:
            certificate = auth_context()
            names = [name for key in CERTIFICATE_NAMES for name in certificate.get(key, ())]
            return self._callers.by_certificate(name.decode(errors="replace") for name in names)
        raise Unauthenticated("a token is required: authorization: Bearer ...", reason="NO_TOKEN")


def bearer(metadata: Metadata) -> str:
    """The token of the header `authorization`; "" where there is none."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and value[: len(BEARER)].lower() == BEARER:
            return value[len(BEARER) :].strip()
    return ""
