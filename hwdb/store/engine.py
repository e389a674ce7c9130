"""Opens a store's database, brings it up to date, and turns its errors into ours."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from tilewise.hwdb.errors import InvalidInput, TilewiseError, TooLarge, Unavailable
from tilewise.hwdb.texts import without_password

SQLITE_FILE = "calibrations.sqlite"
BUSY_S = 10.0  # one writer at a time: the next waits
CONNECT_S = 3
STATEMENT_MS = 15_000
FULL = re.compile(r"disk (is )?full|No space left|file too large|could not extend file|disk I/O error", re.IGNORECASE)


def open_engine(where: str, password: str = "") -> Engine:
    """The database in a folder (SQLite), or at a URL. Raises InvalidInput (BAD_STORE), Unavailable and TooLarge."""
    try:
        engine = _postgresql(where, password) if where.startswith("postgres") else _sqlite(where)
    except (ArgumentError, OSError) as error:
        raise InvalidInput(
            f"{without_password(where)!r} is no folder and no URL: {error}", reason="BAD_STORE"
        ) from error
    migrate(engine)
    return engine


def _postgresql(where: str, password: str) -> Engine:
    url = make_url(where).set(drivername="postgresql+psycopg")
    url = url.set(password=password) if password else url
    options = {
        "connect_timeout": CONNECT_S,
        "options": f"-c statement_timeout={STATEMENT_MS}",
        "client_encoding": "utf8",  # a database without an encoding of its own (SQL_ASCII) would answer bytes
    }
    return create_engine(url, pool_pre_ping=True, pool_size=4, max_overflow=8, pool_timeout=5, connect_args=options)


def _sqlite(where: str) -> Engine:
    """WAL: readers never wait for the writer. synchronous=FULL: what was acknowledged outlives a power cut."""
    folder = Path(where.removeprefix("sqlite:///"))
    path = folder if where.startswith("sqlite:///") else folder / SQLITE_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    with suppress(PermissionError):  # another user's, who shares it
        path.chmod(0o600)  # SQLite gives its other files the same
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_S})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # begin below, not the driver, decides when a transaction starts
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    with _translated(), engine.connect() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that no other writer runs beside: committed at the end, undone by an exception."""
    with _translated(), engine.connect().execution_options(writes=True) as connection, connection.begin():
        connection.execute(text("UPDATE revision SET number = number"))  # the row lock of PostgreSQL
        yield connection


def migrate(engine: Engine) -> None:
    """Apply the migrations that the database lacks, in order, each once whoever else starts at the same moment.

    Raises InvalidInput (NEWER_STORE) where a newer version of Tilewise has been there.
    """
    with _translated(), engine.connect().execution_options(writes=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(7337)"))
        connection.execute(text("CREATE TABLE IF NOT EXISTS migration (number BIGINT PRIMARY KEY, at BIGINT NOT NULL)"))
        done = set(connection.scalars(text("SELECT number FROM migration")))
        known = dict(migrations())
        if not done <= set(known):
            message = f"the store has migration {max(done)}; this version of Tilewise knows {max(known)}: update it"
            raise InvalidInput(message, reason="NEWER_STORE")
        for number in sorted(set(known) - done):
            for statement in known[number].split(";\n"):
                if statement.strip():
                    connection.execute(text(statement))
            values = {"number": number, "at": int(time.time())}
            connection.execute(text("INSERT INTO migration (number, at) VALUES (:number, :at)"), values)


def migrations() -> Iterator[tuple[int, str]]:
    """Number and SQL of every migration. Each runs on both databases: SQLite takes any name for a type."""
    for path in (files("tilewise.hwdb.store") / "migrations").iterdir():
        if path.name.endswith(".sql"):
            yield int(path.name.partition("_")[0]), path.read_text(encoding="utf-8")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise meaning(error) from error


def meaning(error: SQLAlchemyError) -> TilewiseError:
    """TooLarge (STORE_FULL) where the disk is full, Unavailable (STORE_UNAVAILABLE) otherwise; no secrets in either."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if getattr(cause, "sqlstate", "") == "53100" or FULL.search(str(cause)):
        return TooLarge("the store's disk is full; nothing was changed", reason="STORE_FULL")
    return Unavailable("the store's database cannot be reached or is busy; try again", reason="STORE_UNAVAILABLE")
