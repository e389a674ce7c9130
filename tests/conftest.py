"""Fixtures that every test may use."""

import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# A suite started in the background finds SIGINT ignored, and programs inherit that: those that a test interrupts would run for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A busy machine is no fault of the code: no example has a deadline.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


# Servers of tests leave their tokens there, not where the user's own are.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tests-state-")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real configs, measurements and referee tables, which is not part of the project."""
    folder = Path(os.environ.get("TILEWISE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}")
    return folder


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The URL of an empty PostgreSQL database of this test's own, made in the server that TILEWISE_TEST_POSTGRESQL names."""
    server = os.environ.get("TILEWISE_TEST_POSTGRESQL", "")
    if not server:
        pytest.skip("no PostgreSQL: TILEWISE_TEST_POSTGRESQL names none (scripts/with_postgresql.sh starts one)")
    import psycopg

    name = f"tilewise_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        head, question, options = server.partition("?")
        yield f"{head.rpartition('/')[0]}/{name}{question}{options}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "store")
    url: str = request.getfixturevalue("postgresql")
    return url
