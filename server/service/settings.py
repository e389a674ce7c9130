"""What can be set about a server: one field each, with its default and what it means. Flags, environment and file are
made of these fields (client/cli/serve.py)."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.texts import without_password
from tilewise.server.limits import CANDIDATES_MAX

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
UNIX = "unix:"  # before the path of a socket


def setting(default: Any, help: str, metavar: str | None = None, secret: bool = False) -> Any:
    """secret: holds a password, and is shown without it."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "secret": secret})


@dataclass(frozen=True)
class Settings:
    """Raises InvalidInput (BAD_SETTING, INSECURE_ADDRESS, BAD_ADDRESS) for what makes no sense or is not safe."""

    address: str = setting(
        "127.0.0.1:7337",
        "Where to listen; port 0: any; unix:PATH: a socket that its user alone may open.",
        "HOST:PORT|unix:PATH",
    )
    insecure: bool = setting(False, "Allow an address that other machines reach, without TLS.")
    tls_cert: str = setting("", "Certificate chain in PEM; read again when it changes.", "FILE")
    tls_key: str = setting("", "Private key of --tls-cert in PEM.", "FILE")
    tls_client_ca: str = setting("", "Demand a client certificate signed by this authority (mTLS).", "FILE")
    tokens: str = setting("", "Who may call: hashed tokens, roles, tenants; read again when it changes.", "FILE")
    store: str = setting(
        "", "Keeps uploaded calibrations: a folder, or postgresql://...; unset: none.", "DIR|URL", secret=True
    )
    store_password_file: str = setting(
        "", "Password of the store's database, which stands in no argument then.", "FILE"
    )
    tenant_mib: int = setting(
        1024, "Calibrations that one tenant may keep, deleted ones of the last month included.", "MIB"
    )
    metrics_address: str = setting("", "Where Prometheus metrics, /livez and /readyz are; unset: nowhere.", "HOST:PORT")
    workers: int = setting(1, "Processes that share the port; about one a core.", "N")
    threads: int = setting(2, "Calls of a process that compute at a time; half as many long ones.", "N")
    queue: int = setting(64, "Calls that may wait for their turn; more are told when to come again.", "N")
    caller_share: float = setting(
        0.5, "Largest part of threads and queue for one tenant, or caller without one; 1: all.", "PART"
    )
    cache_mib: int = setting(32, "Memory of a process for answers given before; 0: none.", "MIB")
    message_mib: int = setting(16, "Largest request.", "MIB")
    apart: bool = setting(
        True, "Do long work in a process of its own, which gives way to the one that answers short calls."
    )
    candidates: int = setting(CANDIDATES_MAX, "Most shapes that one request may have predicted.", "N")
    short_limit_s: float = setting(30.0, "Longest a short call may take (Predict, Get, List).", "S")
    long_limit_s: float = setting(600.0, "Longest any other call may take.", "S")
    first_s: float = setting(5.0, "Longest a call may wait for its first message.", "S")
    stall_s: float = setting(20.0, "Longest a stream may wait for its caller to send or to read.", "S")
    grace_s: float = setting(10.0, "For what is in flight when told to stop.", "S")
    poll_s: float = setting(0.25, "How often to look for what other replicas published.", "S")
    reflection: bool = setting(True, "Let tools such as grpcurl ask for the contract.")
    tracing: bool = setting(False, "Send OpenTelemetry spans as the OTEL_* variables say.")
    log_format: str = setting("json", "Form of the log lines on stderr: json, text or none.", "FORM")

    def __post_init__(self) -> None:
        if not self.socket:
            split_address(self.address, "address")
        elif self.workers > 1:
            raise InvalidInput("workers: one process alone listens on a socket", reason="BAD_SETTING", field="workers")
        if self.metrics_address:
            split_address(self.metrics_address, "metrics_address")
        for name in (
            "workers",
            "threads",
            "queue",
            "message_mib",
            "tenant_mib",
            "candidates",
            "short_limit_s",
            "long_limit_s",
            "first_s",
            "stall_s",
            "poll_s",
        ):
            _require(getattr(self, name) > 0, name, f"{getattr(self, name)} must be above 0")
        _require(0 < self.caller_share <= 1, "caller_share", f"{self.caller_share} must be above 0 and at most 1")
        _require(self.log_format in ("json", "text", "none"), "log_format", f"{self.log_format!r}: json, text or none")
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_key", "--tls-cert and --tls-key go together")
        _require(bool(self.tls_cert) or not self.tls_client_ca, "tls_client_ca", "--tls-client-ca needs --tls-cert")
        if not (self.loopback or self.tls_cert or self.insecure):
            raise InvalidInput(
                f"{self.address} can be reached from other machines and would be served without TLS; "
                f"give --tls-cert and --tls-key, serve on 127.0.0.1, or allow it with --insecure",
                reason="INSECURE_ADDRESS",
                field="address",
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the server."""
        return bool(self.socket) or split_address(self.address, "address")[0] in LOOPBACK

    @property
    def socket(self) -> str:
        """Path of the UNIX socket; "" where it is none."""
        return self.address.removeprefix(UNIX) if self.address.startswith(UNIX) else ""

    def store_password(self) -> str:
        """What store_password_file holds. Raises InvalidInput (BAD_SETTING) where it cannot be read."""
        try:
            name = self.store_password_file
            return Path(name).read_text(encoding="utf-8").strip() if name else ""
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"store_password_file: {error}", reason="BAD_SETTING", field="store_password_file"
            ) from error

    @property
    def shown_store(self) -> str:
        """The store without a password."""
        return without_password(self.store)


def settings_fields() -> tuple[Field[Any], ...]:
    return fields(Settings)


def split_address(address: str, name: str) -> tuple[str, int]:
    """Host and port of "host:port". Raises InvalidInput (BAD_ADDRESS)."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput(f"{name} {address!r} must be HOST:PORT", reason="BAD_ADDRESS", field=name)
    return host, int(port)


def _require(fine: bool, name: str, message: str) -> None:
    if not fine:
        raise InvalidInput(f"{name}: {message}", reason="BAD_SETTING", field=name)
