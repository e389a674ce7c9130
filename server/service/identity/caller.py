"""Caller: a name, a role and a tenant; and which role each method needs."""

from __future__ import annotations

import tomllib
from enum import IntEnum
from functools import cache
from importlib.resources import files

from tilewise.hwdb.errors import Forbidden
from tilewise.hwdb.record import Record

SHARED = ""  # the tenant whose calibrations everybody sees


class Role(IntEnum):
    """Each may do what the ones before may. roles.toml says which method needs which."""

    READER = 1
    CALIBRATOR = 2
    ADMIN = 3


class Caller(Record):
    """name: for the log; tenant: whose calibrations are seen and uploaded besides the shared ones, SHARED: those alone;
    host: of one whom nothing else tells from others."""

    name: str
    role: Role
    tenant: str = SHARED
    host: str = ""

    @property
    def group(self) -> str:
        """With whom a share of the server is shared: all of a tenant, or the caller alone where it has none."""
        return f"tenant {self.tenant}" if self.tenant != SHARED else f"caller {self.name} {self.host}".rstrip()


def authorise(caller: Caller, method: str) -> None:
    """method: such as "CalibrationService/PublishCalibration". Raises Forbidden (ROLE_MISSING)."""
    needed = needs(method)
    if caller.role < needed:
        message = f"{method} needs the role {needed.name.lower()}; {caller.name} is {caller.role.name.lower()}"
        raise Forbidden(message, reason="ROLE_MISSING", method=method, needed=needed.name.lower())


@cache
def needs(method: str) -> Role:
    """The role of a method: its own entry in roles.toml, else its service's, else admin."""
    words = tomllib.loads((files("tilewise.server.service.identity") / "roles.toml").read_text(encoding="utf-8"))
    service = method.partition("/")[0]
    return Role[words.get(method, words.get(service, "admin")).upper()]
