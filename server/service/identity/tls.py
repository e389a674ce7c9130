"""TLS of the server: certificate and key from files that may be replaced while it runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import grpc

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.service.settings import Settings

log = logging.getLogger(__name__)


class Certificates:
    """The configuration of the next handshake, read again when a file changes."""

    def __init__(self, settings: Settings) -> None:
        names = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._paths = [Path(name) for name in names if name]
        self._client_ca = Path(settings.tls_client_ca) if settings.tls_client_ca else None
        self._seen = self._signature()
        self.first = self._read()

    def fresh(self) -> grpc.ServerCertificateConfiguration | None:
        """None where nothing changed, or where what stands in the files now cannot be read."""
        try:
            seen = self._signature()
            if seen == self._seen:
                return None
            self._seen = seen
            return self._read()
        except InvalidInput as error:
            log.error("the certificate of before stays: %s", error.message)
            return None

    def _read(self) -> grpc.ServerCertificateConfiguration:
        try:
            chain, key, *ca = [path.read_bytes() for path in self._paths]
        except OSError as error:
            message = f"{error.filename}: {(error.strerror or str(error)).lower()}"
            raise InvalidInput(message, reason="BAD_CERTIFICATE", field="tls_cert") from error
        if b"-----BEGIN" not in chain or b"-----BEGIN" not in key:
            raise InvalidInput("certificate and key must be PEM", reason="BAD_CERTIFICATE", field="tls_cert")
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=ca[0] if ca else None)

    def _signature(self) -> list[tuple[int, int]]:
        try:
            return [(os.stat(path).st_mtime_ns, os.stat(path).st_ino) for path in self._paths]
        except OSError as error:
            message = f"{error.filename}: {(error.strerror or str(error)).lower()}"
            raise InvalidInput(message, reason="BAD_CERTIFICATE", field="tls_cert") from error


def credentials(settings: Settings) -> grpc.ServerCredentials:
    """Raises InvalidInput (BAD_CERTIFICATE)."""
    certificates = Certificates(settings)
    return grpc.dynamic_ssl_server_credentials(
        certificates.first,
        certificates.fresh,  # type: ignore[arg-type]  # None means: nothing changed
        require_client_authentication=bool(settings.tls_client_ca),
    )
