"""What people write as a server's address, and why a server there does not answer."""

from __future__ import annotations

import re
import socket
import ssl

DEFAULT_PORT, HTTPS_PORT = 7337, 443  # of `tilewise serve`; of an https:// address
PROBE_S = 2.0
UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "unable to get local issuer", "self-signed", "self signed")
PLAIN = ("WRONG_VERSION_NUMBER", "SSL_ERROR_SSL", "handshake failed", "Handshake failed", "handshaker shutdown")
SILENT = ("Connection refused", "connect failed", "Failed to connect", "failed to connect")
NAMELESS = ("DNS resolution failed", "Domain name not found", "Could not resolve", "name resolution")


def parsed(server: str) -> tuple[str, bool | None]:
    """("host:port", whether to speak TLS; None: not said) of "host", "host:port" or an http(s) address; other schemes are gRPC's."""
    found = re.fullmatch(r"(https?)://([^/]*)/*", server, re.IGNORECASE)
    secure = found[1].lower() == "https" if found else None
    rest = found[2] if found else server
    if "://" in rest or rest.startswith(("unix:", "dns:", "ipv4:", "ipv6:")) or re.search(r"\S:\d+$", rest):
        return rest, secure
    return f"{rest.rstrip(':')}:{HTTPS_PORT if secure else DEFAULT_PORT}", secure


def why(server: str, secure: bool, details: str) -> str:
    """What an UNAVAILABLE means, in one line; "" where nothing more is known. Asks the port whether it speaks TLS."""
    if any(words in details for words in NAMELESS):
        return f"no machine is called {server.rpartition(':')[0]}"
    if secure and any(words in details for words in UNTRUSTED):
        return f"the server at {server} shows a certificate of an authority that is not known here: --ca FILE names its PEM"
    tls = speaks_tls(server)
    if tls is None and any(words in details for words in SILENT):
        return f"no server answers at {server}: `tilewise serve --address HOST:PORT` starts one"
    if secure and tls is False:
        return f"the server at {server} speaks no TLS: write http://{server}"
    if not secure and tls:
        return (
            f"the server at {server} speaks TLS: --ca FILE names the PEM of the authority that signed its certificate"
        )
    return ""


def speaks_tls(server: str) -> bool | None:
    """Whether "host:port" shakes hands; None where nothing listens."""
    host, _, port = server.rpartition(":")
    if not port.isdigit():
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_S) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=host.strip("[]")):
                    return True
            except (ssl.SSLError, OSError) as error:
                return isinstance(error, ssl.SSLError) and "ALERT" in str(error).upper()
    except OSError:
        return None
